//! The landscape itself.
//!
//! Areas and lines of equal height come from the crate `contour`. An area with a hole in it is drawn in one go, along
//! its edge and by a cut to the hole and around that the other way, since plotters' areas have no holes.

use contour::ContourBuilder;

use super::{Layout, Surface};
use crate::figure::FigureError;
use crate::figure::canvas::{Area, At, Canvas, Stroke};
use crate::figure::colour::{ON_DARK, PAPER, Shades, shade, thin};
use crate::figure::frame::AXIS;
use crate::figure::spacing::{AxisValues, Line};

/// Areas of one colour from the best to the worst.
const BANDS: u32 = 24;
/// How unsure (standard deviation as a share of the differences in the mean) gets how pale, each step upon the last.
const PALER: [f64; 8] = [0.03, 0.05, 0.075, 0.1, 0.135, 0.17, 0.21, 0.26];
const PALER_BY: f64 = 0.1;
/// Expected values where neither knob is 0: what can be drawn as one landscape.
struct Grid<'a> {
    xs: &'a [f64],
    ys: &'a [f64],
    /// Index of the first of each in the whole grid.
    first: (usize, usize),
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
    pub(super) fn draw_landscape(
        &self,
        canvas: &Canvas,
        layout: &Layout,
        shades: &Shades,
    ) -> Result<(), FigureError> {
        let grid = self.grid();
        if grid.xs.len() < 2 || grid.ys.len() < 2 {
            return Ok(());
        }
        let heights: Vec<f64> = grid.map(|xi, yi| self.shades_at(shades, xi, yi));
        let spread = self.spread();
        let unsure: Vec<f64> = grid.map(|xi, yi| self.unsure_at(spread, xi, yi));
        let whole = grid.area(layout);
        canvas.fill(&whole, shade(0.0))?;
        // Each band lies upon the better ones: no seams between them.
        for band in 1..BANDS {
            let from = f64::from(band) / f64::from(BANDS);
            let colour = shade(f64::from(band) / f64::from(BANDS - 1));
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
    pub(super) fn draw_strips(
        &self,
        canvas: &Canvas,
        layout: &Layout,
        shades: &Shades,
    ) -> Result<(), FigureError> {
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
                    x: layout.sheet.plot.x + column.from,
                    y: layout.sheet.plot.bottom() - row.to,
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
            x: layout.sheet.plot.x + layout.x.start,
            y: layout.sheet.plot.y,
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
            layout.sheet.plot.x + between(self.xs, x - 0.5, |value| layout.x.at(value)),
            layout.sheet.plot.bottom() - between(self.ys, y - 0.5, |value| layout.y.at(value)),
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
