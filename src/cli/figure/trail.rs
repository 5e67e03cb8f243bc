//! Measurements one after the other: what a tuner tried, how sure it was of each, and where it ended.

use std::collections::{BTreeMap, BTreeSet};

use super::canvas::{Anchor, Area, Canvas, Lettering, Stroke};
use super::colour::{INK, SERIES, SOFT, thin};
use super::frame::{
    AXIS, BAND, BELOW, FITTED, GRID, Heading, Legend, MARGIN, REFERENCE, Symbol, below, beside, beside_width,
};
use super::marks::{Ground, Kind};
use super::spacing::{named, tick};
use super::{Figure, FigureError, font};
use crate::cli::html::chart::Axis;

/// Measurements one after the other with what they scatter, and what a model made of them.
#[derive(Clone, Debug)]
pub(crate) struct Trail {
    /// What it shows, in a few words.
    pub(crate) title: String,
    /// What else is worth knowing; may be empty.
    pub(crate) subtitle: String,
    /// What x counts, such as "sample".
    pub(crate) x_label: String,
    /// What was measured, such as "step time".
    pub(crate) y_label: String,
    /// Its unit, such as "ms"; may be empty.
    pub(crate) y_unit: String,
    /// The measurements, in any order. Of very many, the highest and the lowest of each column of pixels are drawn.
    pub(crate) points: Vec<TrailPoint>,
    /// A line with the band around it, such as what the model expects.
    pub(crate) line: Option<TrailLine>,
    /// Levels worth a line across, such as the default's.
    pub(crate) references: Vec<Reference>,
}

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TrailPoint {
    /// Its place, such as the sample's number.
    pub(crate) x: f64,
    /// What was measured; not drawn if it is no number.
    pub(crate) value: f64,
    /// Where its error bar begins; `value` if there is none.
    pub(crate) low: f64,
    /// Where its error bar ends.
    pub(crate) high: f64,
    /// Its shape.
    pub(crate) kind: Kind,
}

/// A line with the band around it.
#[derive(Clone, Debug)]
pub(crate) struct TrailLine {
    /// What the legend says, such as "model, 90 % band".
    pub(crate) name: String,
    /// Places on it, by rising x.
    pub(crate) points: Vec<TrailLinePoint>,
}

/// One place on a line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TrailLinePoint {
    /// Where.
    pub(crate) x: f64,
    /// Height of the line.
    pub(crate) mean: f64,
    /// Lower edge of the band; `mean` if there is none.
    pub(crate) low: f64,
    /// Upper edge of the band.
    pub(crate) high: f64,
}

/// A level worth a line across.
#[derive(Clone, Debug)]
pub(crate) struct Reference {
    /// What stands beside it, such as "default 44.2 ms".
    pub(crate) name: String,
    /// Its height.
    pub(crate) value: f64,
}

const PLOT_WIDTH: f64 = 620.0;
const PLOT_HEIGHT: f64 = 300.0;
/// Widest name of a reference.
const NAME_WIDTH: f64 = 170.0;
/// Names of references are at least so far apart.
const NAME_HEIGHT: f64 = 15.0;
/// More points than these are thinned out.
const CROWD: usize = 1200;
/// More points than these have no error bars.
const BARS: usize = 250;
/// From this ratio of the highest to the lowest, heights are logarithms: else all but the highest lie on the floor.
const LOGARITHMIC: f64 = 12.0;

/// What stands beside a plot.
const NAME: Lettering = Lettering {
    colour: INK,
    size: 11.5,
    bold: false,
};

struct Layout {
    width: f64,
    height: f64,
    heading: Heading,
    plot: Area,
    x: Axis,
    y: Axis,
    points: Vec<TrailPoint>,
    /// Value and name, from the highest.
    references: Vec<(f64, String)>,
    legend: Legend,
}

impl Layout {
    fn at(&self, x: f64, y: f64) -> (f64, f64) {
        let plot = &self.plot;
        (
            plot.x + self.x.at(x) * plot.width,
            plot.bottom() - self.y.at(y) * plot.height,
        )
    }

    fn ticks(axis: &Axis, length: f64) -> Vec<(f64, String)> {
        axis.ticks
            .iter()
            .map(|(value, name)| (axis.at(*value) * length, name.clone()))
            .collect()
    }
}

impl Trail {
    fn layout(&self) -> Layout {
        let mut points: Vec<TrailPoint> = self
            .points
            .iter()
            .filter(|point| point.x.is_finite() && point.value.is_finite())
            .copied()
            .collect();
        let x = places(points.iter().map(|point| point.x));
        if points.len() > CROWD {
            points = thinned(&points, &x);
        }
        points.sort_by(|a, b| a.kind.cmp(&b.kind).then(a.x.total_cmp(&b.x)));
        let y = self.heights(&points);
        let mut references: Vec<(f64, String)> = self
            .references
            .iter()
            .filter(|reference| reference.value.is_finite())
            .map(|reference| {
                (
                    reference.value,
                    font::fitted(&reference.name, NAME.size, NAME.bold, NAME_WIDTH),
                )
            })
            .collect();
        references.sort_by(|a, b| b.0.total_cmp(&a.0));
        let names = references
            .iter()
            .map(|(_, name)| font::width(name, NAME.size, NAME.bold) + 8.0);
        let left = beside_width(&Layout::ticks(&y, PLOT_HEIGHT));
        let width = left + PLOT_WIDTH + names.fold(0.0, f64::max) + MARGIN;
        let heading = Heading::new(&self.title, &self.subtitle, width - 2.0 * MARGIN);
        let plot = Area {
            x: left,
            y: MARGIN + heading.height() + 6.0,
            width: PLOT_WIDTH,
            height: PLOT_HEIGHT,
        };
        let legend = Legend::new(self.legend(&points), width - left - MARGIN);
        Layout {
            width,
            height: plot.bottom() + BELOW + 4.0 + legend.height() + MARGIN - 4.0,
            heading,
            plot,
            x,
            y,
            points,
            references,
            legend,
        }
    }

    fn legend(&self, points: &[TrailPoint]) -> Vec<(Symbol, String)> {
        let kinds: BTreeSet<Kind> = points.iter().map(|point| point.kind).collect();
        let mark = |kind: Kind| (Symbol::Mark(kind, Ground::Page), kind.name().to_owned());
        let line = self.line.iter().map(|line| (Symbol::Line, line.name.clone()));
        kinds.into_iter().rev().map(mark).chain(line).collect()
    }

    /// From the lowest to the highest of what is drawn; error bars that go far beyond all points are cut off.
    fn heights(&self, points: &[TrailPoint]) -> Axis {
        let line = self
            .line
            .iter()
            .flat_map(|line| &line.points)
            .map(|place| place.mean);
        let references = self.references.iter().map(|reference| reference.value);
        let values: Vec<f64> = points
            .iter()
            .map(|point| point.value)
            .chain(line)
            .chain(references)
            .collect();
        let (low, high) = range(values.into_iter()).unwrap_or((0.0, 1.0));
        let bands = self
            .line
            .iter()
            .flat_map(|line| &line.points)
            .flat_map(|place| [place.low, place.high]);
        let bars = points.iter().flat_map(|point| [point.low, point.high]);
        let (lowest, highest) = range(bands.chain(bars)).unwrap_or((low, high));
        if low > 1e-300 && high / low > LOGARITHMIC {
            let (from, to) = (
                lowest.clamp(low / 2.0, low) / 1.1,
                highest.clamp(high, high * 2.0) * 1.1,
            );
            let axis = Axis::decades("", from, to, 8, tick);
            if axis.ticks.len() >= 2 {
                return axis;
            }
        }
        // Halves, as the difference of two huge numbers is none.
        let span = 2.0
            * (high / 2.0 - low / 2.0)
                .max(high.abs().max(low.abs()) * 0.005)
                .max(f64::MIN_POSITIVE);
        let from = lowest.clamp(low - span, low) - 0.08 * span;
        let to = highest.clamp(high, high + span) + 0.08 * span;
        // Times and scores are never below zero.
        let from = if low >= 0.0 { from.max(0.0) } else { from };
        Axis::linear("", from, to, 8, tick)
    }
}

/// The axis of the places; counted ones have a little room at both ends and only whole numbers named.
fn places(values: impl Iterator<Item = f64> + Clone) -> Axis {
    let (low, high) = range(values.clone()).unwrap_or((0.0, 1.0));
    let whole = values.clone().all(|x| x.fract() == 0.0);
    let room = if whole {
        0.5f64.max((high - low) * 0.015)
    } else {
        (high - low) * 0.02
    };
    let mut axis = Axis::linear("", low - room, high + room, 12, tick);
    if whole {
        axis.ticks.retain(|(value, _)| value.fract() == 0.0);
    }
    axis
}

fn range(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values
        .filter(|v| v.is_finite())
        .fold(None, |range: Option<(f64, f64)>, v| {
            Some(range.map_or((v, v), |(low, high)| (low.min(v), high.max(v))))
        })
}

/// The highest and the lowest of each kind in each column of pixels: what a crowd looks like from afar.
fn thinned(points: &[TrailPoint], x: &Axis) -> Vec<TrailPoint> {
    let mut columns: BTreeMap<(Kind, usize), (TrailPoint, TrailPoint)> = BTreeMap::new();
    for point in points {
        let column = (x.at(point.x) * PLOT_WIDTH / 2.0) as usize;
        let (low, high) = columns.entry((point.kind, column)).or_insert((*point, *point));
        if point.value < low.value {
            *low = *point;
        }
        if point.value > high.value {
            *high = *point;
        }
    }
    columns
        .into_values()
        .flat_map(|(low, high)| [low, high])
        .collect()
}

impl Figure for Trail {
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
        layout.heading.draw(canvas, (MARGIN, MARGIN))?;
        for (at, _) in Layout::ticks(&layout.y, plot.height) {
            let y = plot.bottom() - at;
            canvas.line(vec![(plot.x, y), (plot.right(), y)], GRID)?;
        }
        self.draw_line(canvas, &layout)?;
        draw_references(canvas, &layout)?;
        draw_points(canvas, &layout)?;
        canvas.line(vec![(plot.x, plot.bottom()), (plot.right(), plot.bottom())], AXIS)?;
        below(canvas, plot, &Layout::ticks(&layout.x, plot.width), &self.x_label)?;
        let label = named(&self.y_label, &self.y_unit);
        beside(canvas, plot, &Layout::ticks(&layout.y, plot.height), &label)?;
        layout.legend.draw(canvas, (plot.x, plot.bottom() + BELOW + 4.0))
    }
}

impl Trail {
    fn draw_line(&self, canvas: &Canvas, layout: &Layout) -> Result<(), FigureError> {
        let Some(line) = &self.line else { return Ok(()) };
        let drawn = |place: &&TrailLinePoint| {
            [place.x, place.mean, place.low, place.high]
                .iter()
                .all(|v| v.is_finite())
        };
        let places: Vec<&TrailLinePoint> = line.points.iter().filter(drawn).collect();
        if places.len() < 2 {
            return Ok(());
        }
        let lower = places.iter().map(|place| layout.at(place.x, place.low));
        let upper = places.iter().rev().map(|place| layout.at(place.x, place.high));
        canvas.polygon(lower.chain(upper).collect(), thin(SERIES[5], BAND))?;
        canvas.line(
            places
                .iter()
                .map(|place| layout.at(place.x, place.mean))
                .collect(),
            FITTED,
        )
    }
}

fn draw_points(canvas: &Canvas, layout: &Layout) -> Result<(), FigureError> {
    let points = &layout.points;
    if points.is_empty() {
        let lettering = Lettering { colour: SOFT, ..NAME };
        return canvas.centred("no measurements", layout.plot.centre(), Anchor::Middle, lettering);
    }
    let radius = match points.len() {
        0..=60 => 4.5,
        61..=BARS => 3.4,
        _ => 2.2,
    };
    if points.len() <= BARS {
        for point in points {
            draw_bar(canvas, layout, point, radius)?;
        }
    }
    for point in points {
        let radius = if point.kind == Kind::Best {
            radius.max(4.5) * 1.2
        } else {
            radius
        };
        point
            .kind
            .draw(canvas, layout.at(point.x, point.value), radius, Ground::Page)?;
    }
    Ok(())
}

fn draw_bar(canvas: &Canvas, layout: &Layout, point: &TrailPoint, radius: f64) -> Result<(), FigureError> {
    let finite = point.low.is_finite() && point.high.is_finite();
    if !finite || point.low >= point.high {
        return Ok(());
    }
    let (x, low) = layout.at(point.x, point.low);
    let (_, high) = layout.at(point.x, point.high);
    let stroke = Stroke {
        colour: thin(point.kind.colour(), 0.75),
        width: 1.2,
    };
    let cap = radius * 0.7;
    canvas.line(vec![(x, low), (x, high)], stroke)?;
    // No caps where the bar is cut off at the plot's edge.
    if low < layout.plot.bottom() {
        canvas.line(vec![(x - cap, low), (x + cap, low)], stroke)?;
    }
    if high > layout.plot.y {
        canvas.line(vec![(x - cap, high), (x + cap, high)], stroke)?;
    }
    Ok(())
}

/// Lines across, their names right of the plot, each near its line and none upon another.
fn draw_references(canvas: &Canvas, layout: &Layout) -> Result<(), FigureError> {
    let plot = &layout.plot;
    let mut heights: Vec<f64> = layout
        .references
        .iter()
        .map(|(value, _)| layout.at(0.0, *value).1)
        .collect();
    for (_, y) in layout.references.iter().zip(&heights) {
        canvas.dashes((plot.x, *y), (plot.right(), *y), REFERENCE, 5.0)?;
    }
    apart(&mut heights, (plot.y - 4.0, plot.bottom() + 4.0));
    for ((_, name), y) in layout.references.iter().zip(heights) {
        canvas.centred(name, (plot.right() + 6.0, y), Anchor::Start, NAME)?;
    }
    Ok(())
}

/// Moves rising heights apart as little as is simple: down where they touch, then up from the end.
fn apart(heights: &mut [f64], (from, to): (f64, f64)) {
    let mut least = from;
    for height in heights.iter_mut() {
        *height = height.max(least);
        least = *height + NAME_HEIGHT;
    }
    let mut most = to;
    for height in heights.iter_mut().rev() {
        *height = height.min(most);
        most = *height - NAME_HEIGHT;
    }
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn names_of_levels_keep_apart() {
        let mut heights = [100.0, 104.0, 200.0];
        apart(&mut heights, (0.0, 205.0));
        assert_eq!(heights, [100.0, 115.0, 200.0]);
        let mut heights = [190.0, 200.0, 204.0];
        apart(&mut heights, (0.0, 205.0));
        assert_eq!(heights, [175.0, 190.0, 205.0]);
    }

    #[test]
    fn a_crowd_keeps_its_outline() {
        let point = |i: usize| TrailPoint {
            x: i as f64,
            value: if i == 70_000 { 9.0 } else { (i % 7) as f64 },
            low: 0.0,
            high: 0.0,
            kind: if i == 5 { Kind::Best } else { Kind::Sample },
        };
        let points: Vec<TrailPoint> = (0..100_000).map(point).collect();
        let x = places(points.iter().map(|p| p.x));
        let thinned = thinned(&points, &x);
        assert!(thinned.len() < 700, "{}", thinned.len());
        assert!(thinned.iter().any(|p| p.value == 9.0) && thinned.iter().any(|p| p.kind == Kind::Best));
    }
}
