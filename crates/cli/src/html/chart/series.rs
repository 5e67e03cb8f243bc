//! What belongs together in a chart, and its legend.

use maud::{Markup, html};

use crate::html::text::Foreign;

/// One of the things that a chart tells apart.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    /// Its name in the legend.
    pub(crate) name: String,
    /// The class that fills it: colour, and pattern where colours alone would tell it apart.
    pub(crate) class: String,
}

/// The names beside their fillings.
pub(crate) fn legend<'a>(series: impl IntoIterator<Item = &'a Series>) -> Markup {
    html! {
        ul.legend {
            @for one in series {
                li { (swatch(&one.class)) " " (Foreign(&one.name)) }
            }
        }
    }
}

/// A small box in the series' filling; says nothing itself.
pub(crate) fn swatch(class: &str) -> Markup {
    html! {
        svg.swatch width="18" height="12" aria-hidden="true" { rect class=(class) width="18" height="12" {} }
    }
}

/// A bar in a table's cell, `share` of the cell's width long. The number stands beside it.
pub(crate) fn cell_bar(share: f64, class: &str) -> Markup {
    let width = super::axis::percentage(share.clamp(0.0, 1.0));
    html! {
        svg.cell-bar width="100%" height="10" aria-hidden="true" { rect class=(class) width=(width) height="10" {} }
    }
}
