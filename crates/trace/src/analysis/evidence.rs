//! Evidence behind the advice of a report, for the gate ([`ronde_job::gate`]).

use super::collect::RankRecord;
use super::whatif::WhatIf;
use ronde_job::gate::Evidence;

/// Files whose steps differ in payload by more than this factor may be of different jobs.
const PAYLOAD_RATIO_MOST: f64 = 2.0;

/// Evidence of the files in `records`. `tuning` is whether settings changed within the steady
/// steps.
pub(super) fn of(records: &[RankRecord], whatif: Option<&WhatIf>, tuning: bool) -> Evidence {
    let incomplete = records.iter().find(|record| record.source.incomplete);
    Evidence {
        incomplete: incomplete.map(|record| record.source.path.display().to_string()),
        mixed: mixed(records),
        tuning,
        model: whatif
            .filter(|whatif| whatif.costs_known)
            .map(|whatif| [whatif.measured_ns / 1e6, whatif.modelled_ns / 1e6]),
        ..Evidence::default()
    }
}

/// Difference between files that should be of one job.
fn mixed(records: &[RankRecord]) -> Option<String> {
    let (first, others) = records.split_first()?;
    let payload = |record: &RankRecord| {
        let mut bytes: Vec<f64> = record
            .steps
            .iter()
            .map(|facts| facts.bytes as f64)
            .collect();
        super::quantiles::median(&mut bytes)
    };
    let here = payload(first);
    others.iter().find_map(|record| {
        let there = payload(record);
        let ratio = (here / there).max(there / here);
        (ratio.is_finite() && ratio > PAYLOAD_RATIO_MOST).then(|| {
            format!(
                "a step moves {} in {} and {} in {}",
                ronde_job::units::bytes(here as u64),
                first.source.path.display(),
                ronde_job::units::bytes(there as u64),
                record.source.path.display()
            )
        })
    })
}
