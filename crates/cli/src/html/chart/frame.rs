//! What all charts with two axes share: the picture's title, grid, labels.
//!
//! HostLayout are percentages of a box as wide as the page allows, sizes are pixels: a chart fills a phone and a desk
//! alike, and its letters keep their size. (SVG's paths know no percentages, so that all is lines, boxes and circles.)

use maud::{Markup, html};

use super::axis::{Axis, percentage};
use crate::html::text::Foreign;

/// Name and meaning of a picture, for those who do not see it.
pub(crate) struct Caption<'a> {
    /// Unique on the page; letters and dashes.
    pub(crate) id: &'a str,
    /// A few words.
    pub(crate) title: &'a str,
    /// What there is to see, in a sentence or two.
    pub(crate) description: &'a str,
}

/// A vertical line with a word beside it.
pub(crate) struct Marker {
    /// Where on the x axis, as its values.
    pub(crate) at: f64,
    /// The word.
    pub(crate) label: String,
}

/// The picture around `contents`, which is placed in percent of the plot.
pub(crate) fn frame(
    caption: &Caption,
    height_px: u32,
    x: &Axis,
    y: &Axis,
    markers: &[Marker],
    contents: &Markup,
) -> Markup {
    picture(
        caption,
        height_px,
        "chart plot",
        &html! {
            text.axis-label x="0" y="0" dx="-46" dy="-14" { (Foreign(&y.label)) }
            text.axis-label.end x="100%" y="100%" dy="34" { (Foreign(&x.label)) }
            @for (value, name) in &y.ticks {
                @let at = percentage(1.0 - y.at(*value));
                line.grid x1="0" x2="100%" y1=(at) y2=(at) {}
                text.end.tick-name x="0" y=(at) dx="-6" dy="4" { (Foreign(name)) }
            }
            @for (value, name) in &x.ticks {
                @let at = percentage(x.at(*value));
                svg.tick x=(at) y="100%" { line y2="5" {} text.middle y="18" { (Foreign(name)) } }
            }
            (contents)
            line.axis x1="0" x2="100%" y1="100%" y2="100%" {}
            @for marker in markers {
                @let at = x.at(marker.at);
                line.marker x1=(percentage(at)) x2=(percentage(at)) y1="-6" y2="100%" {}
                text.marker-label.end[at > 0.5] x=(percentage(at)) y="0" dx=(if at > 0.5 { "-5" } else { "5" }) dy="4" {
                    (Foreign(&marker.label))
                }
            }
        },
    )
}

/// The element with its title and description.
pub(super) fn picture(caption: &Caption, height_px: u32, class: &str, contents: &Markup) -> Markup {
    let title = format!("{}-title", caption.id);
    let description = format!("{}-desc", caption.id);
    html! {
        svg class=(class) role="img" aria-labelledby=(title) aria-describedby=(description) height=(height_px) {
            title id=(title) { (Foreign(caption.title)) }
            desc id=(description) { (Foreign(caption.description)) }
            (contents)
        }
    }
}
