//! What a model sees between the samples: expected values as a landscape, paler where it only guesses.
//!
//! Areas and lines of equal height come from the crate `contour`. An area with a hole in it is drawn in one go, along
//! its edge and by a cut to the hole and around that the other way, since plotters' areas have no holes.

use contour::ContourBuilder;

use super::canvas::{Anchor, Area, At, Canvas, Lettering, Stroke};
use super::colour::{ON_BRIGHT, ON_DARK, PAPER, Scale, Shades, shade, thin};
use super::frame::{
    AXIS, BELOW, Heading, Legend, MARGIN, SCALE_BAR, Symbol, below, beside, beside_width, scale_bar,
};
use super::marks::{Ground, Kind};
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
/// Areas of one colour from the best to the worst.
const BANDS: u32 = 24;
/// How unsure (standard deviation as a share of the differences in the mean) gets how pale, each step upon the last.
const PALER: [f64; 8] = [0.03, 0.05, 0.075, 0.1, 0.135, 0.17, 0.21, 0.26];
const PALER_BY: f64 = 0.1;
/// More samples than these are drawn small.
const CROWD: usize = 60;

/// What stands beside samples.
const VALUE: Lettering = Lettering {
    colour: ON_BRIGHT,
    size: 10.5,
    bold: false,
};

struct Layout {
    width: f64,
    height: f64,
    heading: Heading,
    plot: Area,
    x: Line,
    y: Line,
    legend: Legend,
}

impl Layout {
    fn at(&self, x: f64, y: f64) -> At {
        (self.plot.x + self.x.at(x), self.plot.bottom() - self.y.at(y))
    }
}

/// Expected values where neither knob is 0: what can be drawn as one landscape.
struct Grid<'a> {
    xs: &'a [f64],
    ys: &'a [f64],
    /// Index of the first of each in the whole grid.
    first: (usize, usize),
}

impl Surface {
    fn layout(&self) -> Layout {
        let (x, y) = (self.x.line(PLOT_WIDTH), self.y.line(PLOT_HEIGHT));
        let left = beside_width(&y.ticks());
        let width = left + PLOT_WIDTH + MARGIN;
        let heading = Heading::new(&self.title, &self.subtitle, width - 2.0 * MARGIN);
        let plot = Area {
            x: left,
            y: MARGIN + heading.height() + 4.0,
            width: PLOT_WIDTH,
            height: PLOT_HEIGHT,
        };
        let legend = Legend::new(self.legend(), PLOT_WIDTH);
        Layout {
            width,
            height: plot.bottom() + BELOW + SCALE_BAR + 6.0 + legend.height() + MARGIN - 4.0,
            heading,
            plot,
            x,
            y,
            legend,
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
            entries.push((Symbol::Faded, "paler: less sure".to_owned()));
        }
        entries
    }

    /// Where on the scale each place of the grid is; what has no value is at its end.
    fn shades_at(&self, shades: &Shades, xi: usize, yi: usize) -> f64 {
        let mean = self.mean.get(yi * self.x.values.len() + xi);
        mean.map_or(1.0, |mean| shades.at(*mean))
    }

    /// How unsure the model is there, by the differences that it sees: 0 is certain, 1 as unsure as can be told.
    fn unsure_at(&self, spread: f64, xi: usize, yi: usize) -> f64 {
        let index = yi * self.x.values.len() + xi;
        if self.sd.is_empty() {
            return if self.mean.get(index).is_some_and(|mean| mean.is_finite()) {
                0.0
            } else {
                1.0
            };
        }
        let unsure = self.sd.get(index).map_or(f64::INFINITY, |sd| sd / spread);
        if unsure.is_nan() {
            1.0
        } else {
            unsure.clamp(0.0, 1.0)
        }
    }

    /// From the lowest to the highest mean, but for the outermost twentieths.
    fn spread(&self) -> f64 {
        let mut means: Vec<f64> = self
            .mean
            .iter()
            .copied()
            .filter(|mean| mean.is_finite())
            .collect();
        means.sort_by(f64::total_cmp);
        let at = |share: f64| {
            means
                .get((means.len() as f64 * share) as usize)
                .copied()
                .unwrap_or(0.0)
        };
        let spread = at(0.95) - at(0.05);
        // A plain has no differences: then by its height.
        let height = at(0.5).abs() * 0.05;
        spread.max(height).max(f64::MIN_POSITIVE)
    }
}

impl Figure for Surface {
    fn title(&self) -> &str {
        &self.title
    }

    fn size(&self) -> (u32, u32) {
        let layout = self.layout();
        (layout.width.ceil() as u32, layout.height.ceil() as u32)
    }

    fn draw(&self, canvas: &Canvas) -> Result<(), FigureError> {
        let layout = self.layout();
        let plot = &layout.plot;
        let shades = Shades::new(self.mean.iter().copied(), self.scale.better);
        layout.heading.draw(canvas, (MARGIN, MARGIN))?;
        self.draw_landscape(canvas, &layout, &shades)?;
        self.draw_strips(canvas, &layout, &shades)?;
        self.draw_samples(canvas, &layout)?;
        below(canvas, plot, &layout.x.ticks(), &self.x.name())?;
        beside(canvas, plot, &layout.y.ticks(), &self.y.name())?;
        let bar = (plot.x, plot.bottom() + BELOW + 6.0);
        scale_bar(canvas, bar, plot.width, &self.scale.label, &shades)?;
        layout.legend.draw(canvas, (plot.x, bar.1 + SCALE_BAR))
    }
}

impl Surface {
    fn grid(&self) -> Grid<'_> {
        let from = |values: &[f64]| usize::from(values.first() == Some(&0.0));
        let first = (from(&self.x.values), from(&self.y.values));
        Grid {
            xs: &self.x.values[first.0..],
            ys: &self.y.values[first.1..],
            first,
        }
    }

    /// The landscape where neither knob is 0, lines of equal height upon it.
    fn draw_landscape(&self, canvas: &Canvas, layout: &Layout, shades: &Shades) -> Result<(), FigureError> {
        let grid = self.grid();
        if grid.xs.len() < 2 || grid.ys.len() < 2 {
            return Ok(());
        }
        let heights: Vec<f64> = grid.map(|xi, yi| self.shades_at(shades, xi, yi));
        let spread = self.spread();
        let unsure: Vec<f64> = grid.map(|xi, yi| self.unsure_at(spread, xi, yi));
        let whole = grid.area(layout);
        canvas.fill(&whole, shade(0.5 / f64::from(BANDS)))?;
        // Each band lies upon the better ones: no seams between them.
        for band in 1..BANDS {
            let from = f64::from(band) / f64::from(BANDS);
            let colour = shade((f64::from(band) + 0.5) / f64::from(BANDS));
            for rings in grid.above(&heights, from) {
                canvas.polygon(grid.path(layout, &rings), colour)?;
            }
        }
        let contour = Stroke {
            colour: thin(ON_DARK, 0.55),
            width: 0.8,
        };
        for (at, _) in shades
            .ticks()
            .into_iter()
            .filter(|(at, _)| *at > 0.0 && *at < 1.0)
        {
            for ring in grid.above(&heights, at).into_iter().flatten() {
                grid.draw_ring(canvas, layout, &ring, contour)?;
            }
        }
        for level in PALER {
            for rings in grid.above(&unsure, level) {
                canvas.polygon(grid.path(layout, &rings), thin(PAPER, PALER_BY))?;
            }
        }
        canvas.frame(&whole.inside(-0.5), AXIS)
    }

    /// Where a knob is 0: a strip beside the landscape, a box for each place along it.
    fn draw_strips(&self, canvas: &Canvas, layout: &Layout, shades: &Shades) -> Result<(), FigureError> {
        let spread = self.spread();
        let (columns, rows) = (Strip::of(&self.x, &layout.x), Strip::of(&self.y, &layout.y));
        let landscape = {
            let grid = self.grid();
            grid.xs.len() >= 2 && grid.ys.len() >= 2
        };
        for (yi, row) in rows.iter().enumerate() {
            for (xi, column) in columns.iter().enumerate() {
                if landscape && !column.zero && !row.zero {
                    continue;
                }
                let area = Area {
                    x: layout.plot.x + column.from,
                    y: layout.plot.bottom() - row.to,
                    width: column.to - column.from,
                    height: row.to - row.from,
                };
                canvas.fill(&area, shade(self.shades_at(shades, xi, yi)))?;
                let unsure = self.unsure_at(spread, xi, yi);
                let pale = PALER.iter().filter(|level| unsure >= **level).count() as i32;
                if pale > 0 {
                    canvas.fill(&area, thin(PAPER, 1.0 - (1.0 - PALER_BY).powi(pale)))?;
                }
            }
        }
        Ok(())
    }

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
            let Some(area) = free_place(&sample.text, at, radius(sample.kind), &layout.plot, &taken) else {
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

/// What one value of a knob covers along its axis, in units.
struct Strip {
    from: f64,
    to: f64,
    zero: bool,
}

impl Strip {
    fn of(values: &AxisValues, line: &Line) -> Vec<Strip> {
        let places: Vec<f64> = values.values.iter().map(|value| line.at(*value)).collect();
        // Whole, so that neighbours meet without a seam.
        let between = |i: usize| ((places[i] + places[i + 1]) / 2.0).round();
        (0..places.len())
            .map(|i| {
                let zero = i == 0 && line.zero.is_some();
                let first = i == usize::from(line.zero.is_some());
                Strip {
                    from: if zero {
                        0.0
                    } else if first {
                        line.start
                    } else {
                        between(i - 1)
                    },
                    to: match line.zero {
                        Some(width) if zero => width,
                        _ if i + 1 == places.len() => line.length,
                        _ => between(i),
                    },
                    zero,
                }
            })
            .collect()
    }
}

/// The edge of an area, then those of its holes, in places of the grid.
type Rings = Vec<Vec<At>>;

impl Grid<'_> {
    /// A value for each place, row by row.
    fn map(&self, value: impl Fn(usize, usize) -> f64) -> Vec<f64> {
        let row = |yi: usize| (0..self.xs.len()).map(move |xi| (xi, yi));
        (0..self.ys.len())
            .flat_map(row)
            .map(|(xi, yi)| value(xi + self.first.0, yi + self.first.1))
            .collect()
    }

    fn area(&self, layout: &Layout) -> Area {
        Area {
            x: layout.plot.x + layout.x.start,
            y: layout.plot.y,
            width: layout.x.length - layout.x.start,
            height: layout.y.length - layout.y.start,
        }
    }

    /// The areas in which values are at least so high.
    fn above(&self, values: &[f64], threshold: f64) -> Vec<Rings> {
        let contours = ContourBuilder::new(self.xs.len(), self.ys.len(), true).contours(values, &[threshold]);
        // It fails only if there are more or fewer values than places.
        let areas = contours
            .into_iter()
            .flatten()
            .flat_map(|contour| contour.into_inner().0);
        areas
            .map(|area| {
                let (edge, holes) = area.into_inner();
                std::iter::once(edge)
                    .chain(holes)
                    .map(|ring| ring.into_iter().map(|place| (place.x, place.y)).collect())
                    .collect()
            })
            .collect()
    }

    /// Around the area and, by a cut and back, around each of its holes.
    fn path(&self, layout: &Layout, rings: &Rings) -> Vec<At> {
        let mut path: Vec<At> = Vec::new();
        for ring in rings {
            path.extend(ring.iter().map(|place| self.at(layout, *place)));
            path.extend(path.first().copied());
        }
        path
    }

    /// A line of equal height, but for what runs along the landscape's edge.
    fn draw_ring(
        &self,
        canvas: &Canvas,
        layout: &Layout,
        ring: &[At],
        stroke: Stroke,
    ) -> Result<(), FigureError> {
        let (right, top) = (self.xs.len() as f64, self.ys.len() as f64);
        let inside = |(x, y): &At| *x > 1e-9 && *y > 1e-9 && *x < right - 1e-9 && *y < top - 1e-9;
        for part in ring.split(|place| !inside(place)).filter(|part| part.len() >= 2) {
            canvas.line(part.iter().map(|place| self.at(layout, *place)).collect(), stroke)?;
        }
        Ok(())
    }

    /// A place of the grid, half a step off as the crate counts them, in units.
    fn at(&self, layout: &Layout, (x, y): At) -> At {
        (
            layout.plot.x + between(self.xs, x - 0.5, |value| layout.x.at(value)),
            layout.plot.bottom() - between(self.ys, y - 0.5, |value| layout.y.at(value)),
        )
    }
}

/// The place between two of the grid's.
fn between(values: &[f64], index: f64, at: impl Fn(f64) -> f64) -> f64 {
    let index = if index.is_nan() {
        0.0
    } else {
        index.clamp(0.0, (values.len() - 1) as f64)
    };
    let low = index.floor() as usize;
    let high = (low + 1).min(values.len() - 1);
    let (from, to) = (at(values[low]), at(values[high]));
    from + (index - low as f64) * (to - from)
}
