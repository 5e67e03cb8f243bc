//! Upright columns, each made of the same parts: a course over time, or a histogram.

use maud::{Markup, html};

use super::axis::{Axis, percentage};
use super::frame::{Caption, Marker, frame};
use super::series::Series;
use crate::html::text::Foreign;

/// One column.
pub(crate) struct Column {
    /// Its left edge on the x axis.
    pub(crate) from: f64,
    /// Its right edge.
    pub(crate) to: f64,
    /// How high each part is, in the order of the series.
    pub(crate) parts: Vec<f64>,
    /// What a pointer on it is told.
    pub(crate) title: String,
    /// What stands on top of it; may be empty.
    pub(crate) label: String,
    /// Drawn pale: it does not count like the others.
    pub(crate) faint: bool,
}

/// More labels than these touch one another on a phone.
const CROWD: usize = 8;

/// The columns in their frame. Those higher than the y axis are cut off and carry a small triangle.
pub(crate) fn columns(
    caption: &Caption,
    series: &[Series],
    columns: &[Column],
    x: &Axis,
    y: &Axis,
    markers: &[Marker],
    gap_px: u32,
) -> Markup {
    frame(
        caption,
        240,
        x,
        y,
        markers,
        &html! {
            @for column in columns {
                g class=(if column.faint { "column faint" } else { "column" }) {
                    title { (Foreign(&column.title)) }
                    // Without a gap, neighbours lie a little over one another: no seam where edges are rounded apart.
                    @let overlap = if gap_px == 0 && !column.faint { 0.0005 } else { 0.0 };
                    @let (left, right) = (x.at(column.from), x.at(column.to));
                    @for (class, from, to) in pieces(series, column, y) {
                        rect class=(class) style=[(gap_px > 0).then(|| format!("stroke:var(--paper);stroke-width:{gap_px}"))]
                            x=(percentage(left)) y=(percentage(1.0 - to))
                            width=(percentage(right - left + overlap)) height=(percentage(to - from + 3.0 * overlap)) {}
                    }
                }
            }
            // Over all columns, so that none hides its neighbour's; a crowd of them is hidden on a phone.
            g class=[(columns.len() > CROWD).then_some("crowd")] {
                @for column in columns {
                    @let (middle, top) = ((x.at(column.from) + x.at(column.to)) / 2.0, height(column));
                    @if !column.label.is_empty() {
                        text.on-column.middle x=(percentage(middle)) y=(percentage(1.0 - y.at(top))) dy="-4" { (Foreign(&column.label)) }
                    }
                    @if top > y.value(1.0) * 1.0001 {
                        svg.beyond x=(percentage(middle)) y="0" { path d="M-4 -2 L0 -9 L4 -2 Z" {} }
                    }
                }
            }
        },
    )
}

fn height(column: &Column) -> f64 {
    column
        .parts
        .iter()
        .filter(|p| p.is_finite())
        .map(|p| p.max(0.0))
        .sum()
}

/// Class, lower and upper edge of every part that is seen.
fn pieces<'a>(
    series: &'a [Series],
    column: &'a Column,
    y: &'a Axis,
) -> impl Iterator<Item = (&'a str, f64, f64)> {
    series
        .iter()
        .zip(&column.parts)
        .scan(0.0, move |sum, (one, part)| {
            let from = *sum;
            *sum += if part.is_finite() { part.max(0.0) } else { 0.0 };
            Some((one.class.as_str(), y.at(from), y.at(*sum)))
        })
        .filter(|(_, from, to)| to - from >= 5e-5) // less than that rounds to nothing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_that_is_too_high_says_so() {
        let axis = |to| Axis::linear("", 0.0, to, 4, |v| format!("{v}"));
        let series = [Series {
            name: "all".into(),
            class: "one".into(),
        }];
        let caption = Caption {
            id: "t",
            title: "T",
            description: "D",
        };
        let draw = |height| {
            let column = Column {
                from: 0.0,
                to: 1.0,
                parts: vec![height],
                title: "c".into(),
                label: "".into(),
                faint: false,
            };
            columns(&caption, &series, &[column], &axis(2.0), &axis(10.0), &[], 0).into_string()
        };
        assert!(
            draw(5.0).contains(r#"<rect class="one" x="0%" y="50%" width="50.05%" height="50.15%">"#),
            "{}",
            draw(5.0)
        );
        assert!(!draw(5.0).contains("beyond") && draw(20.0).contains("beyond"));
        assert!(draw(20.0).contains(r#"y="0%" width="50.05%" height="100.15%""#));
        assert!(!draw(f64::NAN).contains("NaN"));
    }
}
