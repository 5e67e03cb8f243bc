//! From a figure to SVG, PNG and a part of a page.

use maud::{Markup, PreEscaped, html};
use resvg::{tiny_skia, usvg};
use std::sync::{Arc, LazyLock};

use super::canvas::{Canvas, PER_UNIT};
use super::{Figure, FigureError, font};
use crate::html::text::Foreign;
use crate::html::wide;

/// The style that [`inline`] pictures need, once in a page; refers to the variables of `html/page.css`.
pub(crate) const STYLE: &str = include_str!("figure.css");

/// Pixels of a PNG for each unit.
const PIXELS: u32 = 2;

/// The picture as a file that stands alone, in light colours.
///
/// # Errors
/// [`FigureError::Draw`] if the plot library fails.
pub(crate) fn svg(figure: &impl Figure) -> Result<String, FigureError> {
    let drawn = Canvas::record(figure)?;
    let (width, height) = figure.size();
    let picture = html! {
        svg xmlns="http://www.w3.org/2000/svg" width=(width) height=(height) viewBox=(view_box(figure)) role="img"
            aria-labelledby="title" stroke-linejoin="round" {
            title id="title" { (Foreign(figure.title())) }
            rect width="100%" height="100%" fill="#FFFFFF" {}
            (PreEscaped(drawn))
        }
    };
    Ok(picture.into_string() + "\n")
}

/// The same picture as a PNG, two pixels a unit.
///
/// # Errors
/// [`FigureError`] if the plot library fails or the image cannot be made.
pub(crate) fn png(figure: &impl Figure) -> Result<Vec<u8>, FigureError> {
    let failed = |reason: String| FigureError::Png {
        title: figure.title().to_owned(),
        reason,
    };
    let options = usvg::Options {
        fontdb: Arc::clone(&FONTS),
        ..usvg::Options::default()
    };
    let tree = usvg::Tree::from_str(&svg(figure)?, &options).map_err(|error| failed(error.to_string()))?;
    let (width, height) = figure.size();
    let mut pixels = tiny_skia::Pixmap::new(width * PIXELS, height * PIXELS)
        .ok_or_else(|| failed(format!("{width} × {height} units are no size of an image")))?;
    let scale = tiny_skia::Transform::from_scale(PIXELS as f32, PIXELS as f32);
    resvg::render(&tree, scale, &mut pixels.as_mut());
    pixels.encode_png().map_err(|error| failed(error.to_string()))
}

/// The same picture inside a page: takes the page's colours (light, dark, print), scrolls sideways where the page is
/// too narrow. `label` says what there is to see, in a sentence, for those who do not see it.
///
/// # Errors
/// [`FigureError::Draw`] if the plot library fails.
pub(crate) fn inline(figure: &impl Figure, label: &str) -> Result<Markup, FigureError> {
    let drawn = Canvas::record(figure)?;
    let (width, height) = figure.size();
    let picture = html! {
        svg.figure width=(width) height=(height) viewBox=(view_box(figure)) role="img" aria-label=(Foreign(label)) stroke-linejoin="round" {
            (PreEscaped(drawn))
        }
    };
    Ok(wide(label, &picture))
}

fn view_box(figure: &impl Figure) -> String {
    let (width, height) = figure.size();
    format!("0 0 {} {}", width * PER_UNIT, height * PER_UNIT)
}

/// The bundled font under every name that an SVG asks for; the machine's fonts are not looked at, so that a PNG is the
/// same everywhere.
static FONTS: LazyLock<Arc<usvg::fontdb::Database>> = LazyLock::new(|| {
    let mut fonts = usvg::fontdb::Database::new();
    fonts.load_font_data(font::REGULAR.to_vec());
    fonts.load_font_data(font::BOLD.to_vec());
    let name = fonts
        .faces()
        .next()
        .and_then(|face| face.families.first().map(|(name, _)| name.clone()));
    fonts.set_sans_serif_family(name.unwrap_or_default());
    Arc::new(fonts)
});
