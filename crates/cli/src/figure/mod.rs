//! Pictures of settings and what they brought: a [`HeatMap`] of a sweep, the [`Trail`] of a tuner's samples, the
//! [`Surface`] that a model sees between them.
//!
//! A picture is drawn once, with plotters, as SVG; resvg makes the PNG from that, so that both show the same. Inside a
//! page ([`inline`]) the same SVG takes the page's colours, light, dark or printed, through [`STYLE`]. Letters come
//! from a font in the binary (`assets/fonts/`): a bare server has none.
//!
//! ```text
//! let map = HeatMap { title: "ResNet-50, 2 ranks".into(), x: AxisValues { … }, cells, marks, … };
//! std::fs::write("map.svg", figure::svg(&map)?)?;
//! std::fs::write("map.png", figure::png(&map)?)?;
//! html! { style { (PreEscaped(figure::STYLE)) } … (figure::inline(&map, "Step time over threshold and cycle time")?) }
//! ```

mod canvas;
mod colour;
mod font;
mod frame;
mod heat_map;
mod legend;
mod marks;
mod render;
#[cfg(test)]
mod samples;
mod sheet;
mod spacing;
mod stack;
mod surface;
#[cfg(test)]
mod tests;
mod trail;

pub(crate) use colour::{Better, Scale};
pub(crate) use heat_map::{Cell, HeatMap, Mark};
pub(crate) use marks::Kind;
pub(crate) use render::{STYLE, inline, png, svg};
pub(crate) use spacing::AxisValues;
pub(crate) use stack::Stack;
pub(crate) use surface::{Surface, SurfaceSample};
pub(crate) use trail::{Reference, Trail, TrailLine, TrailLinePoint, TrailPoint};

use canvas::Canvas;

/// Something that can be drawn: everything in it is told by its fields, and the same fields give the same bytes.
pub(crate) trait Figure {
    /// What it shows, in a few words; stands at its top and is its name for those who do not see it.
    fn title(&self) -> &str;

    /// Width and height in units; a unit is a pixel of a page, two of a PNG.
    fn size(&self) -> (u32, u32);

    /// Draws it; the canvas is as large as `size` says.
    ///
    /// # Errors
    /// [`FigureError`] if the plot library fails.
    fn draw(&self, canvas: &Canvas) -> Result<(), FigureError>;
}

/// Why there is no picture.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FigureError {
    /// The plot library could not draw.
    #[error("cannot draw the figure \"{title}\": {reason}")]
    Draw {
        /// The figure's title.
        title: String,
        /// What the library says.
        reason: String,
    },
    /// The drawn SVG could not be made a PNG.
    #[error("cannot make a PNG of the figure \"{title}\": {reason}; its SVG may still be written")]
    Png {
        /// The figure's title.
        title: String,
        /// What the library says.
        reason: String,
    },
}
