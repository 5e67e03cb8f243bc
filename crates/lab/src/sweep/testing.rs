//! Designs and rows for tests.

use super::{Design, Phase, Point, Row, Status, StepTimes};

pub(super) fn design() -> Design {
    Design {
        np: vec![2],
        fusion_threshold_bytes: vec![0, 1 << 20, 4 << 20],
        cycle_time_ms: vec![1.0, 5.0],
        cache: vec![true],
        hierarchical_allreduce: vec![false],
        repeats: 3,
        confirm: 6,
        warmup: 3,
        steps: 20,
        at_least_ms: 0.0,
        budget_s: None,
        seed: 1,
    }
}

/// A point on two ranks that is not the default, with this threshold in MiB.
pub(super) fn point(fusion_mb: u64) -> Point {
    Point {
        fusion_threshold_bytes: fusion_mb << 20,
        cycle_time_ms: 5.0,
        ..Point::default_of(2)
    }
}

/// A measurement whose 10th percentile is 10 % below the median, and the 90th 20 % above.
pub(super) fn row(point: Point, p50: f64) -> Row {
    Row {
        point,
        phase: Phase::Grid,
        block: 0,
        status: Status::Done,
        times: Some(StepTimes {
            steps: 20,
            p10: 0.9 * p50,
            p50,
            p90: 1.2 * p50,
            mean: p50,
        }),
        at_s: 1.0,
    }
}

pub(super) fn failed(point: Point) -> Row {
    Row {
        status: Status::Failed("rank 1 exited with code 1".to_owned()),
        times: None,
        ..row(point, 1.0)
    }
}
