//! Charts as data: axes, series and marks. [`page`] renders them in HTML with Apache ECharts,
//! [`picture`] renders them as PNG and SVG.
//!
//! ```
//! use maud::html;
//! use ronde_present::chart::{Axis, Chart, Data, Point, Series, Shape, Unit, robust_top};
//!
//! let times = [41.2, 40.8, 43.0];
//! let points = times.iter().zip(0u8..).map(|(ms, step)| Point::new(step.into(), *ms, ""));
//! let (shape, points) = (Shape::Circle, points.collect());
//! let chart = Chart {
//!     x: Axis::linear("step", Unit::Count, 0.0, 120.0),
//!     y: Axis::linear("step time", Unit::Ms, 0.0, robust_top(times)),
//!     series: vec![Series::new("computation", "--series-0", Data::Points { shape, points })],
//!     ..Chart::new("steps-chart", "Length of every step")
//! };
//! let markup = html! { (chart) };
//! assert!(markup.into_string().contains("steps-chart"));
//! ```

mod grid;
pub mod page;
pub mod picture;
pub use ronde_charts::scale;

pub use grid::Grid;
use serde::Serialize;

/// A chart with two axes.
#[derive(Clone, Debug, Serialize)]
pub struct Chart {
    /// Identifier, unique on the page: letters, digits and dashes.
    #[serde(skip)]
    pub id: String,
    /// Title of a few words.
    #[serde(skip)]
    pub title: String,
    /// One or two sentences that describe the chart, for screen readers and below the title of a
    /// picture.
    #[serde(skip)]
    pub description: String,
    /// Height in CSS pixels on a page.
    #[serde(skip)]
    pub height_px: u32,
    /// Horizontal axis, from left to right.
    pub x: Axis,
    /// Vertical axis, from bottom to top.
    pub y: Axis,
    /// Series in drawing order. [`Data::Columns`] are stacked on the columns of earlier series.
    pub series: Vec<Series>,
    /// Reference lines across the plot.
    pub rules: Vec<Rule>,
    /// Legend of the colour scale of the boxes.
    #[serde(skip)]
    pub scale: Option<scale::Key>,
    /// Whether the page offers zoom along the x axis.
    pub zoom: bool,
}

impl Chart {
    /// Returns a chart without series.
    pub fn new(id: impl Into<String>, title: impl Into<String>) -> Self {
        Chart {
            id: id.into(),
            title: title.into(),
            description: String::new(),
            height_px: 300,
            x: Axis::linear("", Unit::Plain, 0.0, 1.0),
            y: Axis::linear("", Unit::Plain, 0.0, 1.0),
            series: Vec::new(),
            rules: Vec::new(),
            scale: None,
            zoom: false,
        }
    }
}

/// Axis with its label, unit and range.
#[derive(Clone, Debug, Serialize)]
pub struct Axis {
    /// Name of the quantity, without its unit.
    pub label: String,
    /// Format of the values.
    pub unit: Unit,
    /// Whether the scale is logarithmic.
    pub log: bool,
    /// Smallest value shown.
    pub from: f64,
    /// Largest value shown.
    pub to: f64,
    /// Labelled values; if empty, the renderer chooses round values.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ticks: Vec<(f64, String)>,
}

/// Format of the values of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Plain number; the label names the unit, if any.
    Plain,
    /// Whole number.
    Count,
    /// Milliseconds.
    Ms,
    /// Number of bytes, shown in powers of 1,024.
    Bytes,
}

impl Axis {
    /// Returns a linear axis. An empty or non-finite range is replaced by one that can be drawn.
    pub fn linear(label: &str, unit: Unit, from: f64, to: f64) -> Self {
        let from = if from.abs() < FAR { from } else { 0.0 };
        let to = if to.abs() < FAR && to > from {
            to
        } else {
            from + from.abs().max(1.0)
        };
        Axis {
            label: label.to_owned(),
            unit,
            log: false,
            from,
            to,
            ticks: Vec::new(),
        }
    }

    /// Returns a logarithmic axis; the range must be above zero, or it is replaced.
    pub fn log(label: &str, unit: Unit, from: f64, to: f64) -> Self {
        let from = if (1e-100..FAR).contains(&from) {
            from
        } else {
            1.0
        };
        let to = if to < FAR && to > from {
            to
        } else {
            from * 10.0
        };
        Axis {
            log: true,
            ..Axis::linear(label, unit, from, to)
        }
    }

    /// Returns an axis of categories: the names stand at 0, 1, 2, …
    pub fn places(label: &str, names: impl IntoIterator<Item = String>) -> Self {
        let ticks: Vec<(f64, String)> = names
            .into_iter()
            .enumerate()
            .map(|(at, name)| (at as f64, name))
            .collect();
        Axis {
            ticks: ticks.clone(),
            ..Axis::linear(label, Unit::Plain, -0.5, ticks.len().max(1) as f64 - 0.5)
        }
    }
}

/// Colours of series, which are variables of `ronde_charts::STYLE`.
pub const COLOURS: [&str; 6] = [
    "--series-0",
    "--series-1",
    "--series-2",
    "--series-3",
    "--series-4",
    "--series-5",
];

/// Values of at least this magnitude cannot be drawn.
pub const FAR: f64 = 1e100;

/// Named set of marks in one colour.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// Name in the legend; empty if the series has no entry there.
    pub name: String,
    /// Colour: a variable of `ronde_charts::STYLE`.
    pub colour: &'static str,
    /// Pattern over the colour: an SVG path in a tile of 8 by 8 pixels; may be empty.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub hatch: &'static str,
    /// Its marks.
    #[serde(flatten)]
    pub data: Data,
}

impl Series {
    /// Returns a series without a pattern.
    pub fn new(name: impl Into<String>, colour: &'static str, data: Data) -> Self {
        Series {
            name: name.into(),
            colour,
            hatch: "",
            data,
        }
    }

    /// Returns a series of points.
    pub fn points(
        name: impl Into<String>,
        colour: &'static str,
        shape: Shape,
        points: Vec<Point>,
    ) -> Self {
        Self::new(name, colour, Data::Points { shape, points })
    }

    /// Returns a line through points with x, y, and the lower and upper edge of a band around it.
    pub fn line(
        name: impl Into<String>,
        colour: &'static str,
        dashed: bool,
        points: Vec<[f64; 4]>,
    ) -> Self {
        Self::new(name, colour, Data::Line { points, dashed })
    }

    /// Returns a series of rectangles.
    pub fn boxes(name: impl Into<String>, colour: &'static str, boxes: Vec<Rect>) -> Self {
        Self::new(name, colour, Data::Boxes { boxes })
    }
}

/// Marks of a series.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "lowercase", tag = "kind")]
pub enum Data {
    /// Line with a band around it: x, y, lower and upper edge of the band.
    Line {
        /// x, y, lower and upper edge of the band.
        points: Vec<[f64; 4]>,
        /// Whether the line is dashed.
        dashed: bool,
    },
    /// Points with error bars.
    Points {
        /// Symbol of the points.
        shape: Shape,
        /// The points.
        points: Vec<Point>,
    },
    /// Rectangles.
    Boxes {
        /// The rectangles.
        boxes: Vec<Rect>,
    },
    /// Vertical columns.
    Columns {
        /// The columns, from left to right.
        columns: Vec<Column>,
    },
}

/// Symbol of a point; it distinguishes series where colours do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    /// Circle.
    Circle,
    /// Square.
    Square,
    /// Triangle.
    Triangle,
    /// Diamond.
    Diamond,
    /// Diamond without filling.
    Hollow,
    /// Star with five points.
    Star,
}

/// One measured point.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Position on the x axis.
    pub x: f64,
    /// Position on the y axis.
    pub y: f64,
    /// Lower end of the error bar; equal to `high` if there is none.
    pub low: f64,
    /// Upper end of the error bar.
    pub high: f64,
    /// Text shown on hover.
    pub text: String,
    /// Text shown beside the point; may be empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub label: String,
}

impl Point {
    /// Returns a point without error bar and label.
    pub fn new(x: f64, y: f64, text: impl Into<String>) -> Self {
        Point {
            x,
            y,
            low: y,
            high: y,
            text: text.into(),
            label: String::new(),
        }
    }
}

/// One rectangle.
#[derive(Clone, Debug, Serialize)]
pub struct Rect {
    /// Left and right edge.
    pub x: [f64; 2],
    /// Lower and upper edge.
    pub y: [f64; 2],
    /// `#rrggbb` or `#rrggbbaa`; if empty, the colour of the series.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub colour: String,
    /// Text shown on hover.
    pub text: String,
    /// Text inside the rectangle, if it fits; may be empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub label: String,
}

/// One column of a stack.
#[derive(Clone, Debug, Serialize)]
pub struct Column {
    /// Left and right edge.
    pub x: [f64; 2],
    /// Height of this column alone, without the columns below it.
    pub height: f64,
    /// Text shown on hover, before the name of the series and the height.
    pub text: String,
    /// Whether the column is drawn pale, because the summaries do not include it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub pale: bool,
}

/// Dashed reference line across the plot.
#[derive(Clone, Debug, Serialize)]
pub struct Rule {
    /// Whether the line is vertical, at an x value.
    pub upright: bool,
    /// Value on the x or y axis.
    pub at: f64,
    /// Text beside the line.
    pub name: String,
}

/// Returns the upper end of an axis such that outliers do not compress the other values: 1.05 times
/// the maximum, or 1.5 times the 90th percentile if the maximum is more than three times that
/// percentile. Callers mark the values above it.
pub fn robust_top(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values
        .into_iter()
        .filter(|v| v.is_finite() && *v < FAR)
        .collect();
    values.sort_by(f64::total_cmp);
    let Some(most) = values.last().copied() else {
        return 1.0;
    };
    let typical = values[values.len() * 9 / 10];
    if most > 3.0 * typical && typical > 0.0 {
        1.5 * typical
    } else {
        1.05 * most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_outlier_does_not_compress_the_rest() {
        let mut values = vec![10.0; 20];
        assert_eq!(robust_top(values.clone()), 10.5);
        values.push(500.0);
        assert_eq!(robust_top(values), 15.0);
        assert_eq!(robust_top([f64::NAN]), 1.0);
    }

    #[test]
    fn a_range_at_the_end_of_all_numbers_is_an_axis() {
        for from in [
            f64::MAX,
            1e99,
            f64::MIN_POSITIVE,
            0.0,
            -1.0,
            f64::INFINITY,
            f64::NAN,
        ] {
            for to in [0.0, f64::MAX, f64::INFINITY, f64::NAN] {
                for axis in [
                    Axis::linear("", Unit::Plain, from, to),
                    Axis::log("", Unit::Plain, from, to),
                ] {
                    assert!(
                        axis.from.is_finite() && axis.to.is_finite() && axis.from < axis.to,
                        "{axis:?}"
                    );
                    assert!(!axis.log || axis.from > 0.0);
                }
            }
        }
    }
}
