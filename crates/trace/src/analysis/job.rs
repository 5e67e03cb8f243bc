//! Records of one job: joins the segments of a recording, sorts by rank, and rejects duplicate
//! ranks and files of other jobs.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use super::AnalysisError;
use super::collect::{Facts, KeptStep, RankRecord};
use super::op::sane;
use crate::{Format, Kind, NameId, WALL_CLOCK_MIN_NS};

/// Sorts `records` by rank and joins segments of one recording.
pub(super) fn put_together(records: Vec<RankRecord>) -> Result<Vec<RankRecord>, AnalysisError> {
    let mut records = records;
    // The result must not depend on the order of arguments.
    records.sort_by(|a, b| a.source.path.cmp(&b.source.path));
    same_job(&records)?;
    name_ranks(&mut records);
    // An old segment comes before its successor.
    records.sort_by_key(|record| (record.rank(), !is_old(&record.source.path)));
    let mut joined: Vec<RankRecord> = Vec::new();
    for record in records {
        match joined.last_mut() {
            Some(last) if last.rank() == record.rank() => {
                if !is_old(&last.source.path)
                    || base(&last.source.path) != base(&record.source.path)
                {
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
        return Err(AnalysisError::Nothing);
    }
    same_job(&joined)?;
    Ok(joined)
}

/// Recordings further apart on the wall clock than this are not of one job: clocks of hosts do not
/// differ by so much.
const APART_NS: i64 = 60_000_000_000;

/// Checks that all files can be of one job.
fn same_job(records: &[RankRecord]) -> Result<(), AnalysisError> {
    let Some((first, others)) = records.split_first() else {
        return Ok(());
    };
    for other in others {
        if let Some(why) = difference(first, other) {
            return Err(AnalysisError::OtherJob {
                first: first.source.path.clone(),
                second: other.source.path.clone(),
                why,
            });
        }
    }
    Ok(())
}

/// Reason why two files cannot be of one job. The segments of a recording are joined first: an old
/// one may have ended long before the files of other ranks began, and have other tensors if these
/// are numbered (`noname.1`).
fn difference(one: &RankRecord, other: &RankRecord) -> Option<String> {
    let (a, b) = (&one.source, &other.source);
    let is_segment = is_old(&a.path) || is_old(&b.path);
    if a.format != b.format {
        return Some(format!(
            "one is of {}, the other of {}",
            a.format.name(),
            b.format.name()
        ));
    }
    if let (Some(here), Some(there)) = (a.size, b.size)
        && here != there
    {
        return Some(format!("one is of {here} ranks, the other of {there}"));
    }
    if let (Some(size), Some(rank)) = (a.size.or(b.size), a.rank.max(b.rank))
        && rank >= size
    {
        return Some(format!("rank {rank} is not in a job of {size} ranks"));
    }
    if let (Some(here), Some(there)) = (a.backend.as_deref(), b.backend.as_deref())
        && here != there
    {
        return Some(format!("one uses the backend {here}, the other {there}"));
    }
    if let Some(apart) = apart_ns(one, other)
        && apart > APART_NS
        && !is_segment
    {
        return Some(format!(
            "one ended {} s before the other began",
            apart / 1_000_000_000
        ));
    }
    if !is_segment && share_no_tensor(one, other) {
        return Some("they have no tensor in common".to_owned());
    }
    sizes_differ(one, other)
}

/// Nanoseconds on the wall clock from the end of the earlier recording to the start of the later;
/// `None` if they overlap, or if a clock is unknown.
fn apart_ns(one: &RankRecord, other: &RankRecord) -> Option<i64> {
    let span = |record: &RankRecord| {
        let epoch = record
            .source
            .epoch_ns
            .filter(|&epoch| epoch >= WALL_CLOCK_MIN_NS)?;
        let (began, ended) = record.counters.ends_ns()?;
        Some((epoch.saturating_add(began), epoch.saturating_add(ended)))
    };
    let (a, b) = (span(one)?, span(other)?);
    Some(a.0.max(b.0).saturating_sub(a.1.min(b.1))).filter(|&apart| apart > 0)
}

/// Whether both files have tensors and none in common.
fn share_no_tensor(one: &RankRecord, other: &RankRecord) -> bool {
    let names = |record: &RankRecord| -> HashSet<Box<str>> {
        let travelled = record.names.iter().zip(&record.travelled);
        travelled
            .filter(|(_, travelled)| **travelled)
            .map(|(name, _)| name.clone())
            .collect()
    };
    let (here, there) = (names(one), names(other));
    !here.is_empty() && !there.is_empty() && here.is_disjoint(&there)
}

/// Whether most allreduces that both files have differ in size.
fn sizes_differ(one: &RankRecord, other: &RankRecord) -> Option<String> {
    if !matches!(one.source.format, Format::Horovod | Format::Ronde) {
        return None;
    }
    let (here, there) = (sizes(one), sizes(other));
    let mut shared = 0_usize;
    let mut differ: Vec<&str> = Vec::new();
    for (name, size) in &here {
        if let Some(elements) = there.get(name) {
            shared += 1;
            if elements != size {
                differ.push(name);
            }
        }
    }
    differ.sort_unstable();
    (2 * differ.len() > shared).then(|| format!("`{}` has another size in each", differ[0]))
}

/// Elements of each allreduce, by name.
fn sizes(record: &RankRecord) -> HashMap<&str, u64> {
    let ops = record.kept.iter().flat_map(|step| &step.ops);
    let allreduces = ops.filter(|op| op.kind == Kind::Allreduce);
    allreduces
        .filter_map(|op| Some((record.name(op.tensor), op.elements?)))
        .collect()
}

/// Assigns ranks: of several files, one without a rank gets the lowest free one; Horovod's file is
/// rank 0's.
fn name_ranks(records: &mut [RankRecord]) {
    let several = records.len() > 1;
    for index in 0..records.len() {
        let record = &records[index];
        let stays_unknown = !several && record.source.format != Format::Horovod;
        if record.source.rank.is_some() || stays_unknown {
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
        let guessed = sibling.is_none() && record.source.format != Format::Horovod;
        let record = &mut records[index];
        record.source.rank = Some(rank);
        if guessed {
            record.warnings.push(format!(
                "{} does not state its rank; rank {rank} is assumed",
                record.source.path.display()
            ));
        }
    }
}

/// File name without folder, `.gz` and `.json`.
fn stem(path: &Path) -> String {
    let name = path
        .file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    name.strip_suffix(".json").unwrap_or(name).to_owned()
}

/// Whether this is the path of a rotated segment (`.old`).
fn is_old(path: &Path) -> bool {
    stem(path).ends_with(".old")
}

/// Common base of the paths of one recording's segments.
fn base(path: &Path) -> PathBuf {
    let stem = stem(path);
    path.with_file_name(stem.strip_suffix(".old").unwrap_or(&stem))
}

/// Appends `later` to `first`, the segment before it.
fn append(first: &mut RankRecord, later: RankRecord) {
    let shift = match (first.source.clock, later.source.clock) {
        (Some(a), Some(b)) => b.zero_ns.saturating_sub(a.zero_ns),
        _ => (first.source.epoch_ns.zip(later.source.epoch_ns))
            .map_or(0, |(a, b)| b.saturating_sub(a)),
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
                for activity in op.earlier.iter_mut().chain(&mut op.activities) {
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
    // The first occurrence of a tensor in a later segment is not its first one in the job.
    let negotiated = later.negotiated_cached.into_iter();
    let negotiated = negotiated.chain(later.negotiated_uncached);
    let negotiated = negotiated.map(|(step, ns)| (steps_before + step, ns));
    first.negotiated_cached.extend(negotiated);
    first.work.append(later.work, shift);
    first.warnings.extend(later.warnings);
    let source = &mut first.source;
    source.bytes += later.source.bytes;
    source.events += later.source.events;
    source.dropped_cycles = source
        .dropped_cycles
        .saturating_add(later.source.dropped_cycles);
    source.incomplete |= later.source.incomplete;
    source.size = source.size.max(later.source.size);
    source.warnings.extend(later.source.warnings);
    source.path = later.source.path;
}
