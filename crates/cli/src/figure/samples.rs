//! Figures as sweeps and reviews ask for them, and odd ones, for the tests and for looking at.

use super::*;
use crate::html::number::digits;

/// A step on a link of 1 Gbit/s, as a rough formula has it: enough to look like one.
fn step_ms(threshold_mb: f64, cycle_ms: f64) -> f64 {
    let threshold = threshold_mb.max(0.02);
    let batches = (98.0 / threshold).max(1.0);
    38.0 + 9.0 * (1.0 + cycle_ms / 4.0).ln()
        + 0.25 * batches.powf(0.8)
        + 0.0022 * threshold.powf(1.6)
        + 3.0 / (0.3 + cycle_ms)
}

pub(super) fn axis(label: &str, unit: &str, values: &[f64]) -> AxisValues {
    AxisValues {
        label: label.into(),
        unit: unit.into(),
        values: values.to_vec(),
    }
}

pub(super) fn map(xs: &[f64], ys: &[f64], value: impl Fn(usize, usize) -> Option<f64>) -> HeatMap {
    let cell = |(x, y)| {
        let value = value(x, y);
        Cell {
            x,
            y,
            value,
            text: value.map_or_else(|| "failed".into(), digits),
        }
    };
    let places = (0..ys.len()).flat_map(|y| (0..xs.len()).map(move |x| (x, y)));
    HeatMap {
        title: "ResNet-50 on 2 ranks: step time, ms".into(),
        subtitle: "Median of 3 repeats of 30 steps; cache on, hierarchical allreduce off; link of 1,000 Mbit/s, 2.5 ms".into(),
        x: axis("fusion threshold", "MB", xs),
        y: axis("cycle time", "ms", ys),
        cells: places.map(cell).collect(),
        marks: Vec::new(),
        scale: Scale {
            label: "Step time above the best, 42.1 ms".into(),
            better: Better::Lower,
            noise: 0.0,
        },
    }
}

pub(super) fn mark(x: usize, y: usize, kind: Kind, name: &str) -> Mark {
    Mark {
        x,
        y,
        kind,
        name: name.into(),
    }
}

/// What a sweep leaves behind.
pub(super) fn sweep() -> HeatMap {
    let (xs, ys) = (
        [0.0, 1.0, 4.0, 16.0, 32.0, 64.0, 128.0],
        [0.5, 1.0, 2.5, 5.0, 10.0, 25.0],
    );
    let mut map = map(&xs, &ys, |x, y| ((x, y) != (0, 0)).then(|| step_ms(xs[x], ys[y])));
    map.marks = vec![
        mark(5, 3, Kind::Default, "default: 64 MB, 5 ms"),
        mark(
            3,
            1,
            Kind::Best,
            "best: 16 MB, 1 ms (−9.1 %, 90 % interval −11.2 to −7.4 %)",
        ),
        mark(4, 1, Kind::Other, "tied with the best"),
    ];
    map
}

/// Everything that a map can be asked for and hardly ever is.
pub(super) fn odd_maps() -> Vec<(&'static str, HeatMap)> {
    let many: Vec<f64> = (0..64).map(|i| 0.25 * 2f64.powf(f64::from(i) / 6.0)).collect();
    let mut large = map(&many, &many, |x, y| {
        (!(x + y).is_multiple_of(97)).then(|| step_ms(many[x], many[y] / 20.0))
    });
    large.marks = vec![
        mark(36, 20, Kind::Default, "default"),
        mark(33, 8, Kind::Best, "best"),
    ];
    let mut two = map(&[16.0, 64.0], &[5.0], |x, _| Some(40.0 + x as f64));
    two.marks = vec![
        mark(1, 0, Kind::Default, "default: 64 MB"),
        mark(0, 0, Kind::Best, "best: 16 MB"),
    ];
    let mut row = map(&[0.0, 0.5, 2.0, 8.0, 32.0, 128.0], &[1.0], |x, _| {
        Some(44.0 - 0.5 * x as f64)
    });
    row.marks = vec![
        mark(5, 0, Kind::Default, "default"),
        mark(5, 0, Kind::Best, "best: the default"),
    ];
    let mut column = map(&[64.0], &[0.5, 1.0, 2.5, 5.0, 10.0], |_, y| {
        Some(40.0 * 1.3f64.powi(y as i32))
    });
    column.marks = vec![mark(0, 3, Kind::Default, "default")];
    let mut named = sweep();
    named.title = "A model whose name is as long as those that people give their experiments, ".repeat(4);
    named.subtitle = "<b>bold</b> & \u{1b}[31m red, 深度学习, ".repeat(12);
    named.x.label = "x".repeat(300);
    named.y.label = "y ".repeat(200);
    named.scale.label = "z ".repeat(200);
    named.marks[0].name = "default ".repeat(40);
    for cell in &mut named.cells {
        cell.text = "1,234.56 ms".into();
    }
    let mut none = map(&[1.0, 2.0], &[1.0, 2.0], |_, _| None);
    none.cells.pop();
    vec![
        ("large", large),
        ("two", two),
        ("row", row),
        ("column", column),
        ("named", named),
        (
            "equal",
            map(&[1.0, 2.0, 4.0], &[1.0, 2.0, 4.0], |_, _| Some(40.0)),
        ),
        ("none", none),
        ("no-values", map(&[], &[], |_, _| None)),
        (
            "nan",
            map(&[1.0, 2.0, 4.0], &[1.0], |x, _| {
                Some([f64::NAN, 1.0, f64::INFINITY][x])
            }),
        ),
        (
            "extremes",
            map(&[1e-12, 1.0, 1e12], &[1.0], |x, _| Some([1e-300, 1.0, 1e300][x])),
        ),
        (
            "below-zero",
            map(&[1.0, 2.0, 4.0], &[1.0], |x, _| Some([-1.0, 0.0, 5.0][x])),
        ),
        (
            "unsorted",
            map(&[4.0, 1.0, 4.0], &[1.0], |x, _| Some(x as f64 + 1.0)),
        ),
    ]
}

/// Noise that is the same each time.
fn noise(i: u32) -> f64 {
    let hashed = (i.wrapping_add(17)).wrapping_mul(2_654_435_761) >> 8;
    f64::from(hashed % 2000) / 1000.0 - 1.0
}

/// A finished tuning: default, samples, turns of both, verdict.
pub(super) fn tuning() -> Trail {
    let mut points = Vec::new();
    let mut add = |x: u32, value: f64, kind: Kind| {
        points.push(TrailPoint {
            x: f64::from(x),
            value,
            low: value - 0.6 - 0.4 * noise(x + 7).abs(),
            high: value + 0.7 + 0.5 * noise(x + 9).abs(),
            kind,
        });
    };
    add(0, 46.3, Kind::Default);
    for i in 1..20 {
        let value = 42.2 + 14.0 * (-f64::from(i) / 5.0).exp() * (1.0 + 0.5 * noise(i)) + 0.8 * noise(i + 40);
        add(i, value, if i == 3 { Kind::Other } else { Kind::Sample });
    }
    for i in 0..3 {
        add(20 + 2 * i, 46.2 + 0.4 * noise(90 + i), Kind::AbDefault);
        add(21 + 2 * i, 42.3 + 0.4 * noise(80 + i), Kind::AbCandidate);
    }
    add(17, 42.0, Kind::Best);
    let place = |i: u32| {
        let mean = 42.4 + 13.0 * (-f64::from(i) / 5.0).exp();
        let band = 0.5 + 2.0 * (-f64::from(i) / 6.0).exp();
        TrailLinePoint {
            x: f64::from(i),
            mean,
            low: mean - band,
            high: mean + band,
        }
    };
    Trail {
        title: "ResNet-50 on 2 ranks: what autotune tried".into(),
        subtitle: "Median step time of each sample with its 95 % interval".into(),
        x_label: "sample".into(),
        y_label: "step time".into(),
        y_unit: "ms".into(),
        points,
        line: Some(TrailLine {
            name: "what the model expected, 90 % band".into(),
            points: (1..20).map(place).collect(),
        }),
        references: vec![
            Reference {
                name: "default 46.2 ms".into(),
                value: 46.2,
            },
            Reference {
                name: "best 42.2 ms".into(),
                value: 42.2,
            },
        ],
    }
}

pub(super) fn odd_trails() -> Vec<(&'static str, Trail)> {
    let plain = |points: Vec<(f64, f64)>| Trail {
        points: points
            .into_iter()
            .map(|(x, value)| TrailPoint {
                x,
                value,
                low: value,
                high: value,
                kind: Kind::Sample,
            })
            .collect(),
        line: None,
        references: Vec::new(),
        ..tuning()
    };
    let mut wide = plain(
        (0..40)
            .map(|i| {
                (
                    f64::from(i),
                    40.0 + 500.0 * f64::from(u8::from(i % 13 == 4)) + noise(i),
                )
            })
            .collect(),
    );
    wide.points[7].high = 1e9;
    let mut named = tuning();
    for (i, reference) in named.references.iter_mut().enumerate() {
        reference.name = "a level with a name that goes on ".repeat(4);
        reference.value = 44.0 + 0.01 * i as f64;
    }
    named.y_label = "y ".repeat(300);
    vec![
        ("wide", wide),
        ("named", named),
        ("none", plain(Vec::new())),
        ("one", plain(vec![(0.0, 40.0)])),
        ("equal", plain((0..9).map(|i| (f64::from(i), 40.0)).collect())),
        (
            "crowd",
            plain(
                (0..100_000)
                    .map(|i| {
                        (
                            f64::from(i),
                            50.0 + 5.0 * noise(i) + 20.0 * (-f64::from(i) / 2e4).exp(),
                        )
                    })
                    .collect(),
            ),
        ),
        (
            "hundreds",
            plain((0..200).map(|i| (f64::from(i) * 0.3, 50.0 + noise(i))).collect()),
        ),
        (
            "nan",
            plain(vec![(0.0, f64::NAN), (f64::NAN, 1.0), (1.0, f64::INFINITY)]),
        ),
        (
            "extremes",
            plain(vec![(0.0, f64::MAX), (1e300, f64::MIN), (-1e300, 0.0)]),
        ),
    ]
}

/// What a model made of a dozen samples.
pub(super) fn posterior(zero: bool) -> Surface {
    let spaced = |from: f64, to: f64, count: i32| {
        let step = move |i: i32| from * (to / from).powf(f64::from(i) / f64::from(count - 1));
        (0..count).map(step).collect::<Vec<f64>>()
    };
    let (mut xs, mut ys) = (spaced(0.25, 256.0, 48), spaced(0.1, 100.0, 36));
    if zero {
        xs.insert(0, 0.0);
        ys.insert(0, 0.0);
    }
    let tried = [
        (64.0, 5.0),
        (1.0, 1.0),
        (16.0, 1.0),
        (32.0, 20.0),
        (128.0, 0.5),
        (4.0, 50.0),
        (8.0, 3.0),
        (20.0, 1.6),
        (14.0, 0.7),
        (24.0, 1.1),
        (18.0, 2.2),
        (0.5, 10.0),
    ];
    let mut mean = Vec::new();
    let mut sd = Vec::new();
    for y in &ys {
        for x in &xs {
            mean.push(step_ms(*x, *y));
            let near = |(a, b): &(f64, f64)| (x.max(0.1) / a).ln().hypot((y.max(0.05) / b).ln());
            let nearest = tried.iter().map(near).fold(f64::INFINITY, f64::min);
            sd.push(9.0 * (1.0 - (-nearest / 2.5).exp()));
        }
    }
    let sample = |(i, (x, y)): (usize, &(f64, f64))| SurfaceSample {
        x: *x,
        y: *y,
        text: digits(step_ms(*x, *y) + 0.3 * noise(i as u32)),
        kind: match i {
            0 => Kind::Default,
            8 => Kind::Best,
            _ => Kind::Sample,
        },
        name: match i {
            0 => "default: 64 MB, 5 ms".into(),
            8 => "best: 14 MB, 0.7 ms".into(),
            _ => String::new(),
        },
    };
    Surface {
        title: "ResNet-50 on 2 ranks: step time that the model expects, ms".into(),
        subtitle: "Gaussian process on 12 samples; the numbers are what was measured".into(),
        x: axis("fusion threshold", "MB", &xs),
        y: axis("cycle time", "ms", &ys),
        mean,
        sd,
        samples: tried.iter().enumerate().map(sample).collect(),
        scale: Scale {
            label: "Expected step time above the best, 42.6 ms".into(),
            better: Better::Lower,
            noise: 0.0,
        },
    }
}

pub(super) fn odd_surfaces() -> Vec<(&'static str, Surface)> {
    let mut scores = posterior(false);
    scores.scale = Scale {
        label: "Expected score below the best".into(),
        better: Better::Higher,
        noise: 0.0,
    };
    for mean in &mut scores.mean {
        *mean = 2e4 / *mean;
    }
    let mut flat = posterior(true);
    flat.mean.fill(40.0);
    flat.sd.clear();
    let mut broken = posterior(false);
    for i in (0..broken.mean.len()).step_by(7) {
        broken.mean[i] = f64::NAN;
        broken.sd[i] = f64::INFINITY;
    }
    let mut few = posterior(true);
    few.mean.truncate(100);
    few.sd.truncate(3);
    few.samples[3].x = f64::NAN;
    let mut small = posterior(false);
    small.x.values.truncate(1);
    small.y.values = vec![0.0, 1.0];
    let mut empty = posterior(false);
    empty.x.values.clear();
    empty.y.values.clear();
    let mut far = posterior(false);
    far.x.values = vec![351.75, 4.44e254];
    let mut negative = posterior(false);
    for mean in &mut negative.mean {
        *mean -= 60.0;
    }
    let mut crowded = posterior(false);
    crowded.samples = (0..400)
        .map(|i| SurfaceSample {
            x: 0.3 * 2f64.powf(5.0 + 5.0 * noise(i)),
            y: 3.0 * 2f64.powf(5.0 * noise(i + 1000)),
            text: "44.4".into(),
            kind: Kind::Sample,
            name: String::new(),
        })
        .collect();
    vec![
        ("scores", scores),
        ("flat", flat),
        ("broken", broken),
        ("few", few),
        ("small", small),
        ("empty", empty),
        ("far", far),
        ("negative", negative),
        ("crowded", crowded),
    ]
}
