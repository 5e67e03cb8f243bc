//! Horizontal bars, each of them made of the same parts, on one scale.

use maud::{Markup, html};

use super::axis::{Axis, percentage};
use super::frame::{Caption, picture};
use super::series::Series;
use crate::html::text::Foreign;

/// One bar.
pub(crate) struct Bar {
    /// What it is; stands above it.
    pub(crate) label: String,
    /// How long each part is, in the order of the series.
    pub(crate) parts: Vec<f64>,
}

const BAR_PX: usize = 30;
const ROW_PX: usize = 62;
/// Shorter parts have no number in them: on a phone it would not fit.
const LABELLED: f64 = 0.11;

/// The bars above their axis. `name` says a part's length inside it.
pub(crate) fn bars(
    caption: &Caption,
    series: &[Series],
    bars: &[Bar],
    axis: &Axis,
    name: impl Fn(&Bar, f64) -> String,
) -> Markup {
    let height = (bars.len() * ROW_PX) as u32;
    picture(
        caption,
        height,
        "chart bars",
        &html! {
            @for (value, tick) in &axis.ticks {
                @let at = percentage(axis.at(*value));
                line.grid x1=(at) x2=(at) y1="0" y2="100%" {}
                svg.tick x=(at) y="100%" { line y2="5" {} text.middle y="18" { (Foreign(tick)) } }
            }
            text.axis-label.end x="100%" y="100%" dy="34" { (Foreign(&axis.label)) }
            @for (row, bar) in bars.iter().enumerate() {
                text.bar-label x="0" y=(row * ROW_PX + 14) { (Foreign(&bar.label)) }
                @for (class, title, from, to) in pieces(series, bar, axis, &name) {
                    rect class=(class) x=(percentage(from)) y=(row * ROW_PX + 22) width=(percentage(to - from)) height=(BAR_PX) {
                        title { (Foreign(&title)) }
                    }
                }
                @for (length, from, to) in lengths(bar, axis) {
                    @if to - from >= LABELLED {
                        text.in-bar.middle x=(percentage((from + to) / 2.0)) y=(row * ROW_PX + 42) { (Foreign(&name(bar, length))) }
                    }
                }
            }
        },
    )
}

fn pieces<'a>(
    series: &'a [Series],
    bar: &'a Bar,
    axis: &'a Axis,
    name: &'a impl Fn(&Bar, f64) -> String,
) -> impl Iterator<Item = (&'a str, String, f64, f64)> {
    series
        .iter()
        .zip(lengths(bar, axis))
        .filter(|(_, (length, ..))| *length > 0.0)
        .map(move |(one, (length, from, to))| {
            (
                one.class.as_str(),
                format!("{}: {}", one.name, name(bar, length)),
                from,
                to,
            )
        })
}

/// Length, beginning and end of every part on the axis.
fn lengths<'a>(bar: &'a Bar, axis: &'a Axis) -> impl Iterator<Item = (f64, f64, f64)> {
    bar.parts.iter().scan(0.0, move |sum, part| {
        let part = if part.is_finite() { part.max(0.0) } else { 0.0 };
        let from = *sum;
        *sum += part;
        Some((part, axis.at(from), axis.at(*sum)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_one_another() {
        let axis = Axis::linear("ms", 0.0, 10.0, 5, |v| format!("{v}"));
        let bar = Bar {
            label: "steady".into(),
            parts: vec![2.0, f64::NAN, 3.0],
        };
        assert_eq!(
            lengths(&bar, &axis).collect::<Vec<_>>(),
            [(2.0, 0.0, 0.2), (0.0, 0.2, 0.2), (3.0, 0.2, 0.5)]
        );
        let series = ["a", "b", "c"].map(|n| Series {
            name: n.into(),
            class: format!("p-{n}"),
        });
        let caption = Caption {
            id: "t",
            title: "T",
            description: "D",
        };
        let svg = bars(&caption, &series, &[bar], &axis, |_, ms| format!("{ms} ms")).into_string();
        assert!(
            svg.contains(r#"<rect class="p-a" x="0%" y="22" width="20%" height="30"><title>a: 2 ms</title>"#),
            "{svg}"
        );
        assert!(
            svg.contains(r#"<rect class="p-c" x="20%" y="22" width="30%""#),
            "{svg}"
        );
        assert!(!svg.contains("p-b") && !svg.contains("NaN"), "{svg}");
    }
}
