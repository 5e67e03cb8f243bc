//! What a model sees between the samples: expected values as a landscape, paler where it only guesses.

mod landscape;

use super::canvas::{Anchor, Area, At, Canvas, Lettering};
use super::colour::{ON_BRIGHT, ON_DARK, Scale, Shades, thin};
use super::frame::{below, beside, beside_width};
use super::legend::Symbol;
use super::marks::{Ground, Kind};
use super::sheet::{Around, Sheet};
use super::spacing::{AxisValues, Line};
use super::{Figure, FigureError, font};

/// What a model expects of two knobs, between and beyond the samples it was given; paler where it is less sure.
#[derive(Clone, Debug)]
pub(crate) struct Surface {
    /// What it shows, in a few words.
    pub(crate) title: String,
    /// What else is worth knowing; may be empty.
    pub(crate) subtitle: String,
    /// The grid's places from left to right, 30 to 60 of them, evenly by their logarithms; a 0 at the start stands alone.
    pub(crate) x: AxisValues,
    /// The grid's places from bottom to top, the same way.
    pub(crate) y: AxisValues,
    /// What is expected at each place of the grid, row by row from the lowest y: index `yi * x.values.len() + xi`. What
    /// is missing or no number counts as bad and unsure.
    pub(crate) mean: Vec<f64>,
    /// Standard deviation of that, the same way; empty if unknown.
    pub(crate) sd: Vec<f64>,
    /// What was measured where.
    pub(crate) samples: Vec<SurfaceSample>,
    /// What the colour says.
    pub(crate) scale: Scale,
}

/// A measured setting on a surface.
#[derive(Clone, Debug)]
pub(crate) struct SurfaceSample {
    /// Its value of the knob from left to right.
    pub(crate) x: f64,
    /// Its value of the knob from bottom to top.
    pub(crate) y: f64,
    /// What stands beside it where there is room, such as its step time; may be empty.
    pub(crate) text: String,
    /// Its shape.
    pub(crate) kind: Kind,
    /// What the legend says of it, such as "best: 16 MB, 2.5 ms"; if empty, what all of its kind are called.
    pub(crate) name: String,
}

const PLOT_WIDTH: f64 = 620.0;
const PLOT_HEIGHT: f64 = 400.0;
/// More samples than these are drawn small.
const CROWD: usize = 60;

/// What stands beside samples.
const VALUE: Lettering = Lettering {
    colour: ON_BRIGHT,
    size: 10.5,
    bold: false,
};

struct Layout {
    sheet: Sheet,
    x: Line,
    y: Line,
}

impl Layout {
    fn at(&self, x: f64, y: f64) -> At {
        let plot = &self.sheet.plot;
        (plot.x + self.x.at(x), plot.bottom() - self.y.at(y))
    }
}

impl Surface {
    fn layout(&self) -> Layout {
        let (x, y) = (self.x.line(PLOT_WIDTH), self.y.line(PLOT_HEIGHT));
        Layout {
            sheet: Sheet::new(
                (&self.title, &self.subtitle),
                (PLOT_WIDTH, PLOT_HEIGHT),
                Around::scaled(beside_width(&y.ticks())),
                self.legend(),
            ),
            x,
            y,
        }
    }

    fn legend(&self) -> Vec<(Symbol, String)> {
        let mut entries: Vec<(Kind, String)> = Vec::new();
        for sample in &self.samples {
            let name = match sample.name.as_str() {
                "" => sample.kind.name().to_owned(),
                name => name.to_owned(),
            };
            let entry = (sample.kind, name);
            if !entries.contains(&entry) && entries.len() < 20 {
                entries.push(entry);
            }
        }
        entries.sort_by_key(|(kind, _)| std::cmp::Reverse(*kind));
        let mut entries: Vec<_> = entries
            .into_iter()
            .map(|(kind, name)| (Symbol::Mark(kind, Ground::Shade), name))
            .collect();
        if self.sd.iter().any(|sd| *sd > 0.0) {
            entries.push((Symbol::Faded, "faded: less sure".to_owned()));
        }
        entries
    }
}

impl Figure for Surface {
    fn title(&self) -> &str {
        &self.title
    }

    fn size(&self) -> (u32, u32) {
        self.layout().sheet.size()
    }

    fn draw(&self, canvas: &Canvas) -> Result<(), FigureError> {
        let layout = self.layout();
        let plot = &layout.sheet.plot;
        let shades = Shades::new(self.mean.iter().copied(), self.scale.better, self.scale.noise);
        layout.sheet.draw_heading(canvas)?;
        self.draw_landscape(canvas, &layout, &shades)?;
        self.draw_strips(canvas, &layout, &shades)?;
        self.draw_samples(canvas, &layout)?;
        below(canvas, plot, &layout.x.ticks(), &self.x.name())?;
        beside(canvas, plot, &layout.y.ticks(), &self.y.name())?;
        layout.sheet.draw_scale(canvas, &self.scale.label, &shades)?;
        layout.sheet.draw_legend(canvas)
    }
}

impl Surface {
    /// The samples, the most important last, and their texts where they hide nothing.
    fn draw_samples(&self, canvas: &Canvas, layout: &Layout) -> Result<(), FigureError> {
        let finite = |sample: &&SurfaceSample| sample.x.is_finite() && sample.y.is_finite();
        let mut samples: Vec<&SurfaceSample> = self.samples.iter().filter(finite).collect();
        samples.sort_by_key(|sample| sample.kind);
        let radius = |kind: Kind| match kind {
            Kind::Best => 6.0,
            _ if samples.len() > CROWD => 2.6,
            _ => 4.2,
        };
        for sample in &samples {
            sample.kind.draw(
                canvas,
                layout.at(sample.x, sample.y),
                radius(sample.kind),
                Ground::Shade,
            )?;
        }
        let mut taken: Vec<Area> = samples
            .iter()
            .map(|sample| around(layout.at(sample.x, sample.y), radius(sample.kind)))
            .collect();
        if taken.len() > 10 * CROWD {
            return Ok(()); // no room for any text
        }
        for sample in samples.iter().rev().filter(|sample| !sample.text.is_empty()) {
            let at = layout.at(sample.x, sample.y);
            let Some(area) = free_place(&sample.text, at, radius(sample.kind), &layout.sheet.plot, &taken)
            else {
                continue;
            };
            canvas.fill(&area, thin(ON_DARK, 0.78))?;
            canvas.centred(&sample.text, area.centre(), Anchor::Middle, VALUE)?;
            taken.push(area);
        }
        Ok(())
    }
}

fn around(at: At, radius: f64) -> Area {
    let reach = radius * 1.4;
    Area {
        x: at.0 - reach,
        y: at.1 - reach,
        width: 2.0 * reach,
        height: 2.0 * reach,
    }
}

/// Right of the sample, left of it, above or below: where the text lies within the plot and on nothing else.
fn free_place(text: &str, at: At, radius: f64, plot: &Area, taken: &[Area]) -> Option<Area> {
    let (width, height) = (font::width(text, VALUE.size, VALUE.bold) + 6.0, VALUE.size + 3.0);
    let away = radius * 1.4 + 1.5;
    let places = [
        (at.0 + away, at.1 - height / 2.0),
        (at.0 - away - width, at.1 - height / 2.0),
        (at.0 - width / 2.0, at.1 - away - height),
        (at.0 - width / 2.0, at.1 + away),
    ];
    places
        .into_iter()
        .map(|(x, y)| Area { x, y, width, height })
        .find(|area| plot.inside(1.0).holds(area) && !taken.iter().any(|other| other.overlaps(area)))
}
