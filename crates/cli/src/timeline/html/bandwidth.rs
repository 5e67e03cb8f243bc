//! How fast each collective was: achieved bandwidth by message size, and the line through it.

use maud::{Markup, html};

use crate::html::chart::{Axis, Caption, Cloud, Point, Shape, points};
use crate::html::number::{bytes, count, digits, percent, short};
use crate::html::text::Foreign;
use crate::html::{folded, wide};
use ronde_trace::analysis::report::{Bandwidth, BandwidthPoint, Fit};

/// As many as there are colours.
const MOST_CLOUDS: usize = 6;
/// A line through so many places looks like the curve that it is.
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
            ul.legend {
                @for (i, one) in drawn.iter().enumerate() {
                    li { (shape(i).swatch(&class(i))) " " span.name { (Foreign(&one.activity)) } }
                }
            }
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

/// 10⁹ bytes a second.
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

fn class(series: usize) -> String {
    format!("series-{series}")
}

fn shape(series: usize) -> Shape {
    Shape::ALL[series % Shape::ALL.len()]
}

fn chart(drawn: &[&Bandwidth]) -> Markup {
    let clouds: Vec<Cloud> = drawn.iter().enumerate().map(|(i, one)| cloud(i, one)).collect();
    let all = || clouds.iter().flat_map(|cloud| &cloud.points);
    let least = |value: fn(&Point) -> f64| all().map(value).fold(f64::INFINITY, f64::min);
    let most = |value: fn(&Point) -> f64| all().map(value).fold(0.0, f64::max);
    let x = Axis::powers_of_two(
        "message size",
        least(|p| p.x) / 1.5,
        most(|p| p.x) * 1.5,
        6,
        |v| bytes(v as u64),
    );
    let y = Axis::decades(
        "GB/s",
        least(|p| p.whisker.0) / 1.3,
        most(|p| p.whisker.1) * 1.3,
        10,
        short,
    );
    let clouds: Vec<Cloud> = clouds
        .into_iter()
        .zip(drawn)
        .map(|(cloud, one)| Cloud {
            line: line(one, &x, &y),
            ..cloud
        })
        .collect();
    let caption = Caption {
        id: "bandwidth-chart",
        title: "Achieved bandwidth against message size",
        description: "Both axes logarithmic; a point with a whisker for each size of each collective, and the fitted line.",
    };
    points::points(&caption, &clouds, &x, &y)
}

fn cloud(index: usize, one: &Bandwidth) -> Cloud {
    let points = one.points.iter().filter(|point| drawable(point)).map(|point| {
        let size = point.bytes as f64;
        let speed = gb_per_s(size, point.us_p50);
        let end = |us: f64| {
            if us > 0.0 && us.is_finite() {
                gb_per_s(size, us)
            } else {
                speed
            }
        };
        Point {
            x: size,
            y: speed,
            whisker: (end(point.us_p90), end(point.us_p10)),
            title: format!(
                "{}, {}: {} GB/s, {} µs in the median of {}",
                one.activity,
                bytes(point.bytes),
                digits(speed),
                digits(point.us_p50),
                count(point.n)
            ),
        }
    });
    Cloud {
        class: class(index),
        shape: shape(index),
        points: points.collect(),
        line: Vec::new(),
    }
}

/// The fitted line over the sizes that were seen, as far as it is inside the picture.
fn line(one: &Bandwidth, x: &Axis, y: &Axis) -> Vec<(f64, f64)> {
    let Some(fit) = &one.fit else { return Vec::new() };
    let sizes = || one.points.iter().filter(|p| drawable(p)).map(|p| p.bytes as f64);
    let (from, to) = (
        x.at(sizes().fold(f64::INFINITY, f64::min)),
        x.at(sizes().fold(0.0, f64::max)),
    );
    (0..=LINE_PLACES)
        .map(|i| x.value(from + (to - from) * i as f64 / LINE_PLACES as f64))
        .map(|size| {
            (
                size,
                gb_per_s(size, fit.alpha_us + fit.us_per_mib * size / (1 << 20) as f64),
            )
        })
        .filter(|(_, speed)| *speed >= y.value(0.0) && *speed <= y.value(1.0))
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
