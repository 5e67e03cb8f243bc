//! Bandwidth section: achieved bandwidth of each collective by message size, and the fitted line.

use maud::{Markup, html};

use crate::chart::{Axis, Chart, Data, Point, Series, Shape, Unit};
use crate::html::text::{Foreign, visible};
use crate::html::{folded, wide};
use crate::present::units::{bytes, count, digits, percent};
use ronde_trace::analysis::report::{Bandwidth, BandwidthPoint, Fit};

/// Largest number of collectives drawn: the number of colours.
const MOST_CLOUDS: usize = 6;
/// Number of points of the fitted line, which is a curve on these axes.
const LINE_PLACES: usize = 40;

pub(super) fn show(collectives: &[Bandwidth]) -> Option<Markup> {
    let drawn: Vec<&Bandwidth> = collectives
        .iter()
        .filter(|one| one.points.iter().any(drawable))
        .take(MOST_CLOUDS)
        .collect();
    if drawn.is_empty() {
        return None;
    }
    Some(html! {
        figure {
            (chart(&drawn))
            figcaption {
                "Median of each size; whiskers from the slowest tenth to the fastest tenth. Dashed: the fitted line, time = α + β · bytes."
                @if drawn.len() < collectives.len() { " The table has those that are not drawn too." }
            }
        }
        ul {
            @for one in collectives { li { span.name { (Foreign(&one.activity)) } ": " (fitted(one.fit.as_ref())) } }
        }
        (folded("The points as a table", &wide("Bandwidth", &table(collectives))))
    })
}

fn drawable(point: &BandwidthPoint) -> bool {
    point.bytes > 0 && point.us_p50 > 0.0 && point.us_p50.is_finite()
}

/// Bandwidth in 10⁹ bytes per second.
fn gb_per_s(bytes: f64, us: f64) -> f64 {
    bytes / us / 1e3
}

fn fitted(fit: Option<&Fit>) -> Markup {
    html! {
        @if let Some(fit) = fit {
            "α = " (digits(fit.alpha_us)) " µs and β = " (digits(fit.us_per_mib)) " µs a MiB, that is " (digits(fit.gb_per_s))
            " GB/s for large messages; half of the batches are within " (percent(fit.relative_error)) " of the line."
        } @else { "too few sizes for a line." }
    }
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

fn table(collectives: &[Bandwidth]) -> Markup {
    html! {
        table {
            thead {
                tr {
                    th scope="col" { "Collective" } th.n scope="col" { "size" } th.n scope="col" { "batches" }
                    th.n scope="col" { "median, µs" } th.n scope="col" { "p10" } th.n scope="col" { "p90" } th.n scope="col" { "GB/s" }
                }
            }
            tbody {
                @for one in collectives {
                    @for point in &one.points {
                        tr {
                            td.name { (Foreign(&one.activity)) }
                            td.n { (bytes(point.bytes)) } td.n { (count(point.n)) } td.n { (digits(point.us_p50)) }
                            td.n { (digits(point.us_p10)) } td.n { (digits(point.us_p90)) } td.n { (digits(point.gb_per_s)) }
                        }
                    }
                }
            }
        }
    }
}
