//! Evidence behind the advice of a report, for the gate ([`ronde_job::gate`]).

use super::collect::RankRecord;
use super::report::Fusion;
use super::whatif::WhatIf;
use crate::Format;
use ronde_job::gate::Evidence;

/// Files whose steps differ in payload by more than this factor may be of different jobs.
const PAYLOAD_RATIO_MOST: f64 = 2.0;

/// Evidence of the files in `records`. `tuning` is whether settings changed within the steady
/// steps.
pub(super) fn of(
    records: &[RankRecord],
    fusion: Option<&Fusion>,
    whatif: Option<&WhatIf>,
    tuning: bool,
) -> Evidence {
    let path = |record: &RankRecord| record.source.path.display().to_string();
    let incomplete = records.iter().find(|record| record.source.incomplete);
    let host_only = records.iter().find(|record| record.source.host_only);
    Evidence {
        incomplete: incomplete.map(path),
        host_only: host_only.map(path),
        mixed: mixed(records),
        unknown_settings: unknown_settings(records, fusion),
        tuning,
        model: whatif
            .filter(|whatif| whatif.costs_known)
            .map(|whatif| [whatif.measured_ns / 1e6, whatif.modelled_ns / 1e6]),
        ..Evidence::default()
    }
}

/// Settings that a timeline with cycles does not state. With one of them known, some changes of it
/// can be predicted.
fn unknown_settings(records: &[RankRecord], fusion: Option<&Fusion>) -> Vec<String> {
    let has_cycles =
        |record: &RankRecord| matches!(record.source.format, Format::Horovod | Format::Ronde);
    let unknown = |fusion: &Fusion| !fusion.threshold_from_file && fusion.cycle_time_ms.is_none();
    match records.first().is_some_and(has_cycles) && fusion.is_some_and(unknown) {
        true => ["fusion threshold", "cycle time"].map(str::to_owned).into(),
        false => Vec::new(),
    }
}

/// Whether two recordings overlap in time, as far as their clocks can be compared.
pub(super) fn overlap_in_time(one: &RankRecord, other: &RankRecord) -> bool {
    let (here, there) = (one.counters.ends_ns(), other.counters.ends_ns());
    match (other.source.shift_to(&one.source), here, there) {
        (Some(shift), Some(here), Some(there)) => {
            there.0.saturating_add(shift) <= here.1 && there.1.saturating_add(shift) >= here.0
        }
        _ => true,
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
        if !overlap_in_time(first, record) {
            return Some(format!(
                "{} and {} were not recorded at the same time",
                first.source.path.display(),
                record.source.path.display()
            ));
        }
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
