//! Tests that compare the surfaces with numbers that another program computed.

use super::*;
use crate::harness::truth::{MIB, Setting};

/// Surface, optimum in ms, its threshold in MiB, cycle in ms and hierarchical; 128 MB 1 ms, 64 MB 5
/// ms and no fusion as multiples of it: the table in `results/tuner/README.md`, which another
/// program (Python) printed.
type Published = (&'static str, f64, f64, f64, bool, f64, f64, f64);

const PUBLISHED: [Published; 14] = [
    (
        "resnet50/nv 16x8",
        61.4,
        2.30,
        0.75,
        true,
        1.001,
        1.028,
        1.22,
    ),
    (
        "resnet50/g25 16x4",
        119.6,
        1.74,
        0.42,
        true,
        1.199,
        1.220,
        1.90,
    ),
    (
        "resnet50/g25 128x8",
        193.0,
        6.96,
        1.33,
        true,
        1.095,
        1.104,
        6.08,
    ),
    (
        "resnet50/g1 16x1",
        1816.3,
        21.11,
        1.33,
        false,
        1.002,
        1.002,
        1.14,
    ),
    ("vgg16/nv 2x2", 65.7, 84.45, 0.42, true, 1.292, 1.318, 1.29),
    (
        "vgg16/g25 16x1",
        515.8,
        6.96,
        1.00,
        false,
        1.087,
        1.035,
        1.02,
    ),
    (
        "vgg16/g1 2x1",
        5011.3,
        1.00,
        0.75,
        false,
        1.011,
        1.006,
        1.00,
    ),
    (
        "bert/nv 128x8",
        128.3,
        84.45,
        1.00,
        true,
        1.025,
        1.055,
        3.31,
    ),
    (
        "bert/g25 128x8",
        549.5,
        6.96,
        0.75,
        true,
        1.108,
        1.090,
        3.05,
    ),
    ("bert/g1 16x4", 6034.3, 5.28, 0.75, true, 1.248, 1.248, 1.28),
    (
        "small/g25 16x1",
        37.6,
        0.33,
        1.33,
        false,
        1.002,
        1.064,
        21.11,
    ),
    (
        "small/g1 128x8",
        94.9,
        3.03,
        2.37,
        true,
        1.435,
        1.370,
        161.77,
    ),
    ("small/nv 2x2", 35.4, 0.06, 0.18, false, 1.012, 1.084, 1.23),
    (
        "resnet50/g1 128x1",
        1948.1,
        111.43,
        2.37,
        false,
        1.001,
        1.006,
        2.22,
    ),
];

#[test]
#[cfg_attr(
    debug_assertions,
    ignore = "takes a minute without optimization; scripts/test runs it with"
)]
fn the_labs_surfaces_are_reproduced() {
    // That program's jobs fuse without looking ahead.
    let in_order = Effects {
        looks_ahead: false,
        ..Effects::LAB
    };
    let surfaces = lab(in_order, 1.0, None);
    for (surface, published) in surfaces.iter().zip(PUBLISHED) {
        let (name, best_ms, fusion_mb, cycle_ms, hierarchical, default, old, unfused) = published;
        let optimum = surface.optimum();
        let there = Setting {
            hierarchical,
            ..Setting::of(fusion_mb, cycle_ms)
        };
        let no_fusion = Setting::of(0.0, 1.0);
        println!(
            "{name:18} {:9.2} ms (published {best_ms:8.1}) at {:6.2} MB {:5.2} ms h{}; there {:.4}; default {:.4} ({default}), old {:.4} ({old}), unfused {:.3} ({unfused}), worst {:.2}, near {:.2}",
            optimum.step_us / 1e3,
            optimum.setting.fusion_bytes as f64 / MIB,
            optimum.setting.cycle_ms,
            u8::from(optimum.setting.hierarchical),
            surface.relative(&there),
            surface.relative(&Setting::DEFAULT),
            surface.relative(&Setting::OLD),
            surface.relative(&no_fusion),
            optimum.worst,
            optimum.near,
        );
        let close = |found: f64, published: f64, what: &str| {
            let error = (found / published - 1.0).abs();
            assert!(
                error < 0.01,
                "{name}: {what}: {found} instead of {published}"
            );
        };
        assert_eq!(surface.name, name);
        close(optimum.step_us / 1e3, best_ms, "optimum");
        close(
            surface.relative(&there),
            1.0,
            "step time at the published optimum",
        );
        close(surface.relative(&Setting::DEFAULT), default, "default");
        close(surface.relative(&Setting::OLD), old, "old default");
        close(surface.relative(&no_fusion), unfused, "no fusion");
        assert!(
            optimum.setting.cache,
            "{name}: the cache is on at every optimum"
        );
    }
}

#[test]
#[cfg_attr(
    debug_assertions,
    ignore = "takes a minute without optimization; scripts/test runs it with"
)]
fn the_labs_drawn_truth_is_reproduced() {
    // Another program, in Python, computed 1.023 / 1.204 / 1.075 for the default (median, p90, mean
    // over the surfaces).
    let in_order = Effects {
        looks_ahead: false,
        ..Effects::DRAWN
    };
    let surfaces = lab(in_order, 1.0, None);
    let mut defaults: Vec<f64> = surfaces
        .iter()
        .map(|s| s.relative(&Setting::DEFAULT))
        .collect();
    for (surface, default) in surfaces.iter().zip(&defaults) {
        println!("{:18} default {default:.4}", surface.name);
    }
    let close = |found: f64, published: f64| {
        assert!(
            (found / published - 1.0).abs() < 0.01,
            "{found} instead of {published}"
        );
    };
    close(defaults[8], 1.13); // bert/g25 128x8
    close(defaults[2], 1.04); // resnet50/g25 128x8
    close(defaults.iter().sum::<f64>() / 14.0, 1.075);
    defaults.sort_by(f64::total_cmp);
    close((defaults[6] + defaults[7]) / 2.0, 1.023);
    close(defaults[11] + 0.7 * (defaults[12] - defaults[11]), 1.204);
}
