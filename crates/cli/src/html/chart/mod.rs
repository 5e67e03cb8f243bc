//! Charts as inline SVG, without a script and without a library: bars, columns, points.
//!
//! They know numbers, names and CSS classes, nothing of what is drawn.

pub(crate) mod axis;
pub(crate) mod columns;
pub(crate) mod frame;
pub(crate) mod points;
pub(crate) mod series;
pub(crate) mod stacked;

pub(crate) use axis::Axis;
pub(crate) use columns::Column;
pub(crate) use frame::{Caption, Marker};
pub(crate) use points::{Cloud, Point, Shape};
pub(crate) use series::{Series, cell_bar, legend, swatch};
pub(crate) use stacked::Bar;
