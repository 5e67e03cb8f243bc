//! Report for tests, with numbers that can be checked by mental arithmetic: five steps on two
//! ranks, of 80 ms and then 40 ms; the first is start-up, the last is incomplete. Two tensors are
//! reduced and one is gathered.

use ronde_trace::analysis::Report;
use ronde_trace::analysis::report::{LaneBar, LaneTick, PartKind, RankBars, StepsFoundBy};

/// The report, as `ronde timeline --json` writes it, with the lanes, which are not written.
pub(in crate::timeline) fn report() -> Report {
    let report = serde_json::from_str(include_str!("sample.json"));
    Report {
        lanes: (0..2).map(lane).collect(),
        ..report.expect("the sample is a report")
    }
}

/// Three steady steps of a rank, each with two batches.
fn lane(rank: u32) -> RankBars {
    let (mut bars, mut ready) = (Vec::new(), Vec::new());
    for step in 0..3 {
        let zero = 40.0 * f64::from(step);
        let mut bar = |label: &str, part, began: f64, ended: f64| {
            bars.push(LaneBar {
                label: label.to_owned(),
                part,
                row: 0,
                began_ms: zero + began,
                ended_ms: zero + ended,
            });
        };
        bar("computation", PartKind::Compute, 0.0, 24.0);
        for (tensor, at) in [("fc.weight", 5.0), ("conv1.weight", 20.0)] {
            bar(tensor, PartKind::WaitForRanks, at, at + 3.0);
            bar(tensor, PartKind::Negotiation, at + 3.0, at + 5.0);
            bar(tensor, PartKind::Collective, at + 5.0, at + 15.0);
            ready.push(LaneTick {
                tensor: tensor.to_owned(),
                at_ms: zero + at,
            });
        }
    }
    RankBars {
        rank,
        step_ends_ms: vec![40.0, 80.0, 120.0],
        bars,
        ready,
        cycles_ms: vec![8.0, 23.0, 48.0],
    }
}

/// The report of the same files without operations.
pub(super) fn empty() -> Report {
    let mut report = report();
    report.sources.truncate(1);
    report.sources[0].operations = 0;
    report.sources[0].tensors = 0;
    Report {
        ranks: 1,
        steps_found_by: StepsFoundBy::Nothing,
        steps: Vec::new(),
        startup: None,
        steady: None,
        stragglers: None,
        fusion: None,
        bandwidth: Vec::new(),
        tensors: Vec::new(),
        advice: Vec::new(),
        lanes: Vec::new(),
        warnings: Vec::new(),
        ..report
    }
}
