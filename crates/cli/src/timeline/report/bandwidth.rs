//! Section on bandwidth: achieved bandwidth of each collective by message size, and the fitted
//! line.

use maud::Markup;

use crate::chart::{Axis, COLOURS, Chart, Point, Series, Shape, Unit};
use crate::html::text::visible;
use crate::present::units::{bytes, count, decimals, digits, fixed, percent};
use crate::present::{Cell, Section, Table};
use ronde_job::percentile::{geometric, range};
use ronde_trace::analysis::Report;
use ronde_trace::analysis::report::{Bandwidth, BandwidthPoint};

/// Number of points of the fitted line, which is a curve on these axes.
const LINE_PLACES: usize = 41;

const SHAPES: [Shape; 4] = [
    Shape::Circle,
    Shape::Square,
    Shape::Triangle,
    Shape::Diamond,
];

pub(super) fn section(report: &Report) -> Section<'_> {
    let clouds = report.bandwidth.iter().map(|one| (one, cloud(one)));
    let clouds = clouds.filter(|(_, points)| !points.is_empty());
    let clouds: Vec<(&Bandwidth, Vec<Point>)> = clouds.take(COLOURS.len()).collect();
    let mut section = Section::new("bandwidth", "Bandwidth of the collectives");
    if !clouds.is_empty() {
        section = section.page(figure(clouds));
    }
    for one in &report.bandwidth {
        section = section.text(fitted(one)).table(table(one));
    }
    section
}

fn fitted(one: &Bandwidth) -> String {
    match &one.fit {
        Some(fit) => format!(
            "{}: time = {} µs + {} µs a MiB ({} GB/s), median error {}",
            one.activity,
            fixed(fit.alpha_us, 1),
            fixed(fit.us_per_mib, 1),
            fixed(fit.gb_per_s, 2),
            percent(fit.relative_error)
        ),
        None => one.activity.clone(),
    }
}

/// Bandwidth in 10⁹ bytes per second.
fn gb_per_s(bytes: f64, us: f64) -> f64 {
    bytes / us / 1e3
}

fn figure(clouds: Vec<(&Bandwidth, Vec<Point>)>) -> Markup {
    let all = || clouds.iter().flat_map(|(_, points)| points);
    let [smallest, largest] = range(all().map(|point| point.x));
    let [slowest, fastest] = range(all().flat_map(|point| [point.low, point.high]));
    let y = Axis::log("GB/s", Unit::Plain, slowest / 1.3, fastest * 1.3);
    let mut series = Vec::new();
    for (index, (one, points)) in clouds.into_iter().enumerate() {
        let name = visible(&one.activity);
        let (colour, shape) = (COLOURS[index], SHAPES[index % SHAPES.len()]);
        let line = line(one, &points, &y);
        if !line.is_empty() {
            series.push(Series::line(name.clone(), colour, true, line));
        }
        series.push(Series::points(name, colour, shape, points));
    }
    let title = "Achieved bandwidth, GB/s, against message size";
    let chart = Chart {
        description: "Both axes logarithmic; a point with an error bar for each size of each \
                      collective, and the fitted line."
            .into(),
        x: Axis::log("message size", Unit::Bytes, smallest / 1.5, largest * 1.5),
        y,
        series,
        ..Chart::new("bandwidth-chart", title)
    };
    chart.figure(
        "Median of each size; whiskers from the slowest tenth to the fastest tenth. Dashed: the \
         fitted line of the time.",
    )
}

fn cloud(one: &Bandwidth) -> Vec<Point> {
    let is_time = |us: f64| us > 0.0 && us.is_finite();
    let drawn = |point: &&BandwidthPoint| point.bytes > 0 && is_time(point.us_p50);
    let points = one.points.iter().filter(drawn).map(|point| {
        let size = point.bytes as f64;
        let speed = gb_per_s(size, point.us_p50);
        let end = |us: f64| gb_per_s(size, if is_time(us) { us } else { point.us_p50 });
        let text = format!(
            "{}, {}: {} GB/s, {} µs in the median of {}",
            visible(&one.activity),
            bytes(point.bytes),
            digits(speed),
            digits(point.us_p50),
            count(point.n)
        );
        Point {
            low: end(point.us_p90),
            high: end(point.us_p10),
            ..Point::new(size, speed, text)
        }
    });
    points.collect()
}

/// Points of the fitted line over the measured sizes, as far as they are inside the chart.
fn line(one: &Bandwidth, points: &[Point], y: &Axis) -> Vec<[f64; 4]> {
    let Some(fit) = &one.fit else {
        return Vec::new();
    };
    let sizes = geometric(range(points.iter().map(|point| point.x)), LINE_PLACES);
    let line = sizes.into_iter().map(|size| {
        let us = fit.alpha_us + fit.us_per_mib * size / f64::from(1 << 20);
        let speed = gb_per_s(size, us);
        [size, speed, speed, speed]
    });
    line.filter(|[_, speed, ..]| (y.from..=y.to).contains(speed))
        .collect()
}

fn table(one: &Bandwidth) -> Table {
    let speeds = one.points.iter().map(|point| point.gb_per_s);
    let fastest = speeds.fold(0.0, f64::max);
    let places = decimals(one.points.iter().map(|point| point.us_p90));
    let mut table = Table::headed("size; batches; median µs; p10; p90; GB/s; |");
    for point in &one.points {
        table.row([
            bytes(point.bytes).into(),
            count(point.n).into(),
            fixed(point.us_p50, places).into(),
            fixed(point.us_p10, places).into(),
            fixed(point.us_p90, places).into(),
            fixed(point.gb_per_s, 3).into(),
            Cell::Bar(point.gb_per_s / fastest),
        ]);
    }
    table
}
