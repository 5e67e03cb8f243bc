//! How a figure is laid out: heading, plot, axes, what explains the colours, legend.

use super::FigureError;
use super::canvas::{Area, Canvas};
use super::colour::Shades;
use super::frame::{BELOW, Heading, MARGIN, SCALE_BAR, scale_bar};
use super::legend::{Legend, Symbol};

/// Between the axis' names and a scale of colours.
const ABOVE_SCALE: f64 = 6.0;

/// What a plot needs around it, besides margins, heading and the names below it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Around {
    /// With the margin.
    pub(super) left: f64,
    pub(super) right: f64,
    /// Below the heading.
    pub(super) above: f64,
    /// Between the names below the plot and the legend.
    pub(super) beneath: f64,
}

impl Around {
    /// A plot with a scale of colours.
    pub(super) fn scaled(left: f64) -> Self {
        Self {
            left,
            right: 0.0,
            above: 4.0,
            beneath: ABOVE_SCALE + SCALE_BAR,
        }
    }
}

/// Where everything is.
pub(super) struct Sheet {
    pub(super) plot: Area,
    heading: Heading,
    legend: Legend,
    /// Where the legend begins.
    legend_y: f64,
    width: f64,
}

impl Sheet {
    /// Around a plot of this width and height; `heading` is title and subtitle.
    pub(super) fn new(
        heading: (&str, &str),
        plot: (f64, f64),
        around: Around,
        legend: Vec<(Symbol, String)>,
    ) -> Self {
        let width = around.left + plot.0 + around.right + MARGIN;
        let heading = Heading::new(heading.0, heading.1, width - 2.0 * MARGIN);
        let plot = Area {
            x: around.left,
            y: MARGIN + heading.height() + around.above,
            width: plot.0,
            height: plot.1,
        };
        Self {
            legend: Legend::new(legend, width - around.left - MARGIN),
            legend_y: plot.bottom() + BELOW + around.beneath,
            plot,
            heading,
            width,
        }
    }

    /// Width and height of the figure.
    pub(super) fn size(&self) -> (u32, u32) {
        let height = self.legend_y + self.legend.height() + MARGIN - 4.0;
        (self.width.ceil() as u32, height.ceil() as u32)
    }

    pub(super) fn draw_heading(&self, canvas: &Canvas) -> Result<(), FigureError> {
        self.heading.draw(canvas, (MARGIN, MARGIN))
    }

    /// The scale of colours, for which [`Around::scaled`] leaves room.
    pub(super) fn draw_scale(
        &self,
        canvas: &Canvas,
        label: &str,
        shades: &Shades,
    ) -> Result<(), FigureError> {
        let at = (self.plot.x, self.plot.bottom() + BELOW + ABOVE_SCALE);
        scale_bar(canvas, at, self.plot.width, label, shades)
    }

    pub(super) fn draw_legend(&self, canvas: &Canvas) -> Result<(), FigureError> {
        self.legend.draw(canvas, (self.plot.x, self.legend_y))
    }
}
