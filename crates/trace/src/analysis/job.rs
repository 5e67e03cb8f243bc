//! The files of one job, put together: segments of one recording joined, ranks in order, none twice.

use std::path::{Path, PathBuf};

use super::AnalysisError;
use super::collect::{Facts, KeptStep, RankRecord};
use super::op::sane;
use crate::{Format, NameId};

/// Puts `records` in order of rank, with segments of one recording joined.
pub(super) fn put_together(records: Vec<RankRecord>) -> Result<Vec<RankRecord>, AnalysisError> {
    let mut records = records;
    name_ranks(&mut records);
    // An old segment comes before its successor.
    records.sort_by_key(|record| (record.rank(), !is_old(&record.source.path)));
    let mut joined: Vec<RankRecord> = Vec::new();
    for record in records {
        match joined.last_mut() {
            Some(last) if last.rank() == record.rank() => {
                if !is_old(&last.source.path) || base(&last.source.path) != base(&record.source.path) {
                    return Err(AnalysisError::RankTwice {
                        rank: record.rank(),
                        first: last.source.path.clone(),
                        second: record.source.path,
                    });
                }
                append(last, record);
            }
            _ => joined.push(record),
        }
    }
    if joined.is_empty() {
        Err(AnalysisError::Nothing)
    } else {
        Ok(joined)
    }
}

/// Files that do not say their rank get the lowest that no other file has; Horovod's is rank 0's.
fn name_ranks(records: &mut [RankRecord]) {
    let several = records.len() > 1;
    for index in 0..records.len() {
        let record = &records[index];
        if record.source.rank.is_some() {
            continue;
        }
        let segment_of = |other: &RankRecord| base(&other.source.path) == base(&record.source.path);
        let sibling = records
            .iter()
            .find(|other| other.source.rank.is_some() && segment_of(other));
        let taken = |rank: u32| records.iter().any(|other| other.source.rank == Some(rank));
        let rank = match (sibling, record.source.format) {
            (Some(sibling), _) => sibling.rank(),
            (None, Format::Horovod) => 0,
            (None, _) => (0..).find(|&rank| !taken(rank)).unwrap_or(0),
        };
        let guessed = several && sibling.is_none() && record.source.format != Format::Horovod;
        let record = &mut records[index];
        record.source.rank = Some(rank);
        if guessed {
            record.warnings.push(format!(
                "{} does not say whose it is; it is taken for rank {rank}'s",
                record.source.path.display()
            ));
        }
    }
}

/// A file name without folder, `.gz` and `.json`.
fn stem(path: &Path) -> String {
    let name = path
        .file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    name.strip_suffix(".json").unwrap_or(name).to_owned()
}

/// Whether a path is that of a recording's first segment, set aside when it grew too long.
fn is_old(path: &Path) -> bool {
    stem(path).ends_with(".old")
}

/// What the segments of one recording have in common.
fn base(path: &Path) -> PathBuf {
    let stem = stem(path);
    path.with_file_name(stem.strip_suffix(".old").unwrap_or(&stem))
}

/// Joins `later` to `first`, the segment before it.
fn append(first: &mut RankRecord, later: RankRecord) {
    let shift = match (first.source.clock, later.source.clock) {
        (Some(a), Some(b)) => b.zero_ns.saturating_sub(a.zero_ns),
        _ => (first.source.epoch_ns.zip(later.source.epoch_ns)).map_or(0, |(a, b)| b.saturating_sub(a)),
    };
    let mut names: Vec<NameId> = Vec::with_capacity(later.names.len());
    let mut ids: std::collections::HashMap<Box<str>, NameId> = (first.names.iter().enumerate())
        .map(|(index, name)| (name.clone(), NameId(index as u32)))
        .collect();
    for name in later.names {
        let id = *ids.entry(name.clone()).or_insert_with(|| {
            first.names.push(name);
            NameId(first.names.len() as u32 - 1)
        });
        names.push(id);
    }
    let id = |old: NameId| names.get(old.0 as usize).copied().unwrap_or(old);
    let at = |time: &mut i64| *time = sane(time.saturating_add(shift));
    let steps_before = first.steps.len();
    first
        .steps
        .extend(later.steps.into_iter().map(|mut facts: Facts| {
            at(&mut facts.span.began);
            at(&mut facts.span.ended);
            facts
        }));
    first
        .kept
        .extend(later.kept.into_iter().map(|mut step: KeptStep| {
            step.index += steps_before;
            for op in &mut step.ops {
                op.tensor = id(op.tensor);
                at(&mut op.span.began);
                at(&mut op.span.ended);
                if let Some(span) = &mut op.negotiation {
                    at(&mut span.began);
                    at(&mut span.ended);
                }
                op.ticks.iter_mut().for_each(|tick| at(&mut tick.at));
                for activity in &mut op.activities {
                    activity.name = id(activity.name);
                    at(&mut activity.span.began);
                    at(&mut activity.span.ended);
                }
                if let Some(cycle) = &mut op.cycle {
                    at(cycle);
                }
            }
            step
        }));
    first.travelled.resize(first.names.len(), false);
    for (index, travelled) in later.travelled.into_iter().enumerate() {
        if let Some(all) = first.travelled.get_mut(id(NameId(index as u32)).0 as usize) {
            *all |= travelled;
        }
    }
    first.counters.append(later.counters, &names, shift);
    first.marks.append(later.marks, shift);
    first.negotiated_cached.extend(later.negotiated_cached);
    // A tensor's first time in a later segment is not its first time.
    first.negotiated_cached.extend(later.negotiated_uncached);
    first.compute_known |= later.compute_known;
    first.warnings.extend(later.warnings);
    let source = &mut first.source;
    source.bytes += later.source.bytes;
    source.events += later.source.events;
    source.dropped_cycles = source.dropped_cycles.max(later.source.dropped_cycles);
    source.size = source.size.max(later.source.size);
    source.warnings.extend(later.source.warnings);
    source.path = later.source.path;
}
