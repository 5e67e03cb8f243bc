//! Rows for tests.

use super::{Phase, Point, Row, Status, StepSummary};

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
        steps: 20,
        times: Some(StepSummary {
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
        steps: 0,
        times: None,
        ..row(point, 1.0)
    }
}
