//! Measurements one after the other: what a tuner tried, how sure it was of each, and where it ended.

mod range;

use std::collections::BTreeSet;

use super::canvas::{Anchor, Canvas, Lettering, Stroke};
use super::colour::{INK, SERIES, SOFT, thin};
use super::frame::{AXIS, BAND, FITTED, GRID, REFERENCE, below, beside, beside_width};
use super::legend::Symbol;
use super::marks::{Ground, Kind};
use super::sheet::{Around, Sheet};
use super::spacing::named;
use super::{Figure, FigureError, font};
use crate::html::chart::Axis;
use range::{CROWD, heights, places, sane, thinned};

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
    /// HostLayout on it, by rising x.
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
/// More points than these have no error bars.
const BARS: usize = 250;

/// What stands beside a plot.
const NAME: Lettering = Lettering {
    colour: INK,
    size: 11.5,
    bold: false,
};

struct Layout {
    sheet: Sheet,
    x: Axis,
    y: Axis,
    points: Vec<TrailPoint>,
    /// Value and name, from the highest.
    references: Vec<(f64, String)>,
}

impl Layout {
    fn at(&self, x: f64, y: f64) -> (f64, f64) {
        let plot = &self.sheet.plot;
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
            .filter(|point| sane(point.x) && sane(point.value))
            .copied()
            .collect();
        let x = places(points.iter().map(|point| point.x));
        if points.len() > CROWD {
            points = thinned(&points, &x, PLOT_WIDTH);
        }
        points.sort_by(|a, b| a.kind.cmp(&b.kind).then(a.x.total_cmp(&b.x)));
        let y = heights(self, &points);
        let mut references: Vec<(f64, String)> = self
            .references
            .iter()
            .filter(|reference| sane(reference.value))
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
        let around = Around {
            left: beside_width(&Layout::ticks(&y, PLOT_HEIGHT)),
            right: names.fold(0.0, f64::max),
            above: 6.0,
            beneath: 4.0,
        };
        Layout {
            sheet: Sheet::new(
                (&self.title, &self.subtitle),
                (PLOT_WIDTH, PLOT_HEIGHT),
                around,
                self.legend(&points),
            ),
            x,
            y,
            points,
            references,
        }
    }

    fn legend(&self, points: &[TrailPoint]) -> Vec<(Symbol, String)> {
        let kinds: BTreeSet<Kind> = points.iter().map(|point| point.kind).collect();
        let mark = |kind: Kind| (Symbol::Mark(kind, Ground::Page), kind.name().to_owned());
        let line = self.line.iter().map(|line| (Symbol::Line, line.name.clone()));
        kinds.into_iter().rev().map(mark).chain(line).collect()
    }
}

impl Figure for Trail {
    fn title(&self) -> &str {
        &self.title
    }

    fn size(&self) -> (u32, u32) {
        self.layout().sheet.size()
    }

    fn draw(&self, canvas: &Canvas) -> Result<(), FigureError> {
        let layout = self.layout();
        let plot = &layout.sheet.plot;
        layout.sheet.draw_heading(canvas)?;
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
        layout.sheet.draw_legend(canvas)
    }
}

impl Trail {
    fn draw_line(&self, canvas: &Canvas, layout: &Layout) -> Result<(), FigureError> {
        let Some(line) = &self.line else { return Ok(()) };
        let drawn =
            |place: &&TrailLinePoint| [place.x, place.mean, place.low, place.high].into_iter().all(sane);
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
        return canvas.centred(
            "no measurements",
            layout.sheet.plot.centre(),
            Anchor::Middle,
            lettering,
        );
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
    if low < layout.sheet.plot.bottom() {
        canvas.line(vec![(x - cap, low), (x + cap, low)], stroke)?;
    }
    if high > layout.sheet.plot.y {
        canvas.line(vec![(x - cap, high), (x + cap, high)], stroke)?;
    }
    Ok(())
}

/// Lines across, their names right of the plot, each near its line and none upon another.
fn draw_references(canvas: &Canvas, layout: &Layout) -> Result<(), FigureError> {
    let plot = &layout.sheet.plot;
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
mod tests {
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
}
