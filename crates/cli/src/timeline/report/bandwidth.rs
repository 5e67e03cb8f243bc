//! Section on bandwidth: achieved bandwidth of each collective by message size, and the fitted line.

use maud::{Markup, html};

use crate::chart::{Axis, Chart, Data, Point, Series, Shape, Unit};
use crate::html::text::visible;
use crate::present::units::{bytes, count, decimals, digits, fixed, percent};
use crate::present::{Cell, Section, Table};
use ronde_trace::analysis::Report;
use ronde_trace::analysis::report::{Bandwidth, BandwidthPoint};

/// Largest number of collectives drawn: the number of colours.
const MOST_CLOUDS: usize = 6;
/// Number of points of the fitted line, which is a curve on these axes.
const LINE_PLACES: usize = 40;

pub(super) fn section(report: &Report) -> Section<'_> {
    let drawn = report
        .bandwidth
        .iter()
        .filter(|one| one.points.iter().any(drawable));
    let drawn: Vec<&Bandwidth> = drawn.take(MOST_CLOUDS).collect();
    let mut section = Section::new("bandwidth", "Bandwidth of the collectives");
    if !drawn.is_empty() {
        section = section.page(figure(&drawn));
    }
    for one in &report.bandwidth {
        section = section.text(fitted(one)).table(table(one));
    }
    section
}

fn figure(drawn: &[&Bandwidth]) -> Markup {
    html! {
        figure {
            (chart(drawn))
            figcaption {
                "Median of each size; whiskers from the 10th to the 90th percentile. Dashed: fitted line."
            }
        }
    }
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

fn drawable(point: &BandwidthPoint) -> bool {
    point.bytes > 0 && point.us_p50 > 0.0 && point.us_p50.is_finite()
}

/// Bandwidth in 10⁹ bytes per second.
fn gb_per_s(bytes: f64, us: f64) -> f64 {
    bytes / us / 1e3
}

const COLOURS: [&str; MOST_CLOUDS] = [
    "--series-0",
    "--series-1",
    "--series-2",
    "--series-3",
    "--series-4",
    "--series-5",
];
const SHAPES: [Shape; 4] = [
    Shape::Circle,
    Shape::Square,
    Shape::Triangle,
    Shape::Diamond,
];

fn chart(drawn: &[&Bandwidth]) -> Chart {
    let clouds: Vec<Vec<Point>> = drawn.iter().map(|one| cloud(one)).collect();
    let all = || clouds.iter().flatten();
    let least = |value: fn(&Point) -> f64| all().map(value).fold(f64::INFINITY, f64::min);
    let most = |value: fn(&Point) -> f64| all().map(value).fold(0.0, f64::max);
    let x = Axis::log(
        "message size",
        Unit::Bytes,
        least(|p| p.x) / 1.5,
        most(|p| p.x) * 1.5,
    );
    let y = Axis::log(
        "GB/s",
        Unit::Plain,
        least(|p| p.low) / 1.3,
        most(|p| p.high) * 1.3,
    );
    let mut series = Vec::new();
    for (index, (one, points)) in drawn.iter().zip(clouds).enumerate() {
        let name = visible(&one.activity);
        let line = line(one, &points, &y);
        if !line.is_empty() {
            let line = Data::Line {
                points: line,
                dashed: true,
            };
            series.push(Series::new(name.clone(), COLOURS[index], line));
        }
        let points = Data::Points {
            shape: SHAPES[index % SHAPES.len()],
            points,
        };
        series.push(Series::new(name, COLOURS[index], points));
    }
    Chart {
        description: "Both axes logarithmic; a point with an error bar for each size of each collective, and the fitted line."
            .into(),
        x,
        y,
        series,
        ..Chart::new("bandwidth-chart", "Achieved bandwidth, GB/s, against message size")
    }
}

fn cloud(one: &Bandwidth) -> Vec<Point> {
    let points = one
        .points
        .iter()
        .filter(|point| drawable(point))
        .map(|point| {
            let size = point.bytes as f64;
            let speed = gb_per_s(size, point.us_p50);
            let end = |us: f64| {
                if us > 0.0 && us.is_finite() {
                    gb_per_s(size, us)
                } else {
                    speed
                }
            };
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
    let from = points.iter().map(|p| p.x).fold(f64::INFINITY, f64::min);
    let to = points.iter().map(|p| p.x).fold(0.0, f64::max);
    (0..=LINE_PLACES)
        .map(|i| from * (to / from).powf(i as f64 / LINE_PLACES as f64))
        .map(|size| {
            (
                size,
                gb_per_s(
                    size,
                    fit.alpha_us + fit.us_per_mib * size / (1 << 20) as f64,
                ),
            )
        })
        .filter(|(_, speed)| (y.from..=y.to).contains(speed))
        .map(|(size, speed)| [size, speed, speed, speed])
        .collect()
}

fn table(one: &Bandwidth) -> Table {
    let fastest = one
        .points
        .iter()
        .map(|point| point.gb_per_s)
        .fold(0.0, f64::max);
    let places = decimals(one.points.iter().map(|point| point.us_p90));
    let mut table = Table::new(&["size", "batches", "median µs", "p10", "p90", "GB/s", "|"]);
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
