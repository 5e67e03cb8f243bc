//! Signatures for now; the pictures follow.

use maud::Markup;

use super::{Figure, FigureError};

/// The style that [`inline`] pictures need, once in a page; refers to the variables of `html/page.css`.
pub(crate) const STYLE: &str = include_str!("figure.css");

/// The picture as a file that stands alone, in light colours.
///
/// # Errors
/// [`FigureError::Draw`] if the plot library fails.
pub(crate) fn svg(figure: &impl Figure) -> Result<String, FigureError>;

/// The same picture as a PNG, two pixels a unit.
///
/// # Errors
/// [`FigureError`] if the plot library fails or the image cannot be made.
pub(crate) fn png(figure: &impl Figure) -> Result<Vec<u8>, FigureError>;

/// The same picture inside a page: takes the page's colours (light, dark, print), scrolls sideways where the page is
/// too narrow. `label` says what there is to see, in a sentence, for those who do not see it.
///
/// # Errors
/// [`FigureError::Draw`] if the plot library fails.
pub(crate) fn inline(figure: &impl Figure, label: &str) -> Result<Markup, FigureError>;
