//! Measured points with what they scatter, and the line that was fitted through them.

use maud::{Markup, html};

use super::axis::{Axis, percentage};
use super::frame::{Caption, frame};
use crate::html::text::Foreign;

/// One measured point.
pub(crate) struct Point {
    /// Its place.
    pub(crate) x: f64,
    /// Its place.
    pub(crate) y: f64,
    /// Where its whisker ends, below and above.
    pub(crate) whisker: (f64, f64),
    /// What a pointer on it is told.
    pub(crate) title: String,
}

/// Points that belong together.
pub(crate) struct Cloud {
    /// The class that colours them.
    pub(crate) class: String,
    /// Their shape.
    pub(crate) shape: Shape,
    /// The points.
    pub(crate) points: Vec<Point>,
    /// The line as places on it, in order of x.
    pub(crate) line: Vec<(f64, f64)>,
}

/// Shapes tell series apart where colours do not.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape {
    /// ●
    Circle,
    /// ■
    Square,
    /// ▲
    Triangle,
    /// ◆
    Diamond,
}

impl Shape {
    /// All of them, to be dealt out in turn.
    pub(crate) const ALL: [Shape; 4] = [Shape::Circle, Shape::Square, Shape::Triangle, Shape::Diamond];

    /// Its outline around 0, 0.
    fn path(self) -> &'static str {
        match self {
            Shape::Circle => "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0Z",
            Shape::Square => "M-4.5 -4.5h9v9h-9Z",
            Shape::Triangle => "M0 -6L5.5 4.5H-5.5Z",
            Shape::Diamond => "M0 -6L6 0L0 6L-6 0Z",
        }
    }

    /// The shape by itself, for a legend.
    pub(crate) fn swatch(self, class: &str) -> Markup {
        html! {
            svg.swatch.points width="18" height="14" viewBox="-9 -7 18 14" aria-hidden="true" {
                g class=(class) { path d=(self.path()) {} }
            }
        }
    }
}

/// All clouds in one frame.
pub(crate) fn points(caption: &Caption, clouds: &[Cloud], x: &Axis, y: &Axis) -> Markup {
    let place = |px: f64, py: f64| (percentage(x.at(px)), percentage(1.0 - y.at(py)));
    frame(
        caption,
        300,
        x,
        y,
        &[],
        &html! {
            @for cloud in clouds {
                g class={ "points " (cloud.class) } {
                    @for ends in cloud.line.windows(2) {
                        @let (x1, y1) = place(ends[0].0, ends[0].1);
                        @let (x2, y2) = place(ends[1].0, ends[1].1);
                        line.fit x1=(x1) y1=(y1) x2=(x2) y2=(y2) {}
                    }
                    @for point in &cloud.points {
                        @let (low, high) = (place(point.x, point.whisker.0), place(point.x, point.whisker.1));
                        line.whisker x1=(low.0) y1=(low.1) x2=(high.0) y2=(high.1) {}
                        svg.cap x=(low.0) y=(low.1) { line x1="-4" x2="4" {} }
                        svg.cap x=(high.0) y=(high.1) { line x1="-4" x2="4" {} }
                    }
                    @for point in &cloud.points {
                        @let (px, py) = place(point.x, point.y);
                        svg.dot x=(px) y=(py) { path d=(cloud.shape.path()) { title { (Foreign(&point.title)) } } }
                    }
                }
            }
        },
    )
}
