//! Runs all analyses of one job: from the records of its files to the report.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use super::collect::{Cut, Facts, RankRecord};
use super::join::{Readiness, ready_here};
use super::joined::Measured;
use super::op::Op;
use super::quantiles::median;
use super::report::{PartKind, Quantiles, REPORT_VERSION, Report, StepsFoundBy};
use super::steady::SteadyStep;
use super::{
    advice, bandwidth, changepoint, evidence, fusion, lanes, sources, stages, steady, stragglers,
    summary, tensors, whatif,
};
use crate::Format;
use ronde_job::units::percent;

/// Minimum share of complete steps with equal tensors; the other steps are then untypical.
const USUAL_SHARE: f64 = 0.5;
/// If no composition reaches that share, a step is untypical if its payload differs from the median
/// by more than this share.
const BYTES_OFF: f64 = 0.1;

/// Analyses the steps `window` of `records`, which are in order of rank and not empty. Returns the
/// report and the steady steps.
pub(super) fn examine<'a>(
    records: &'a [RankRecord],
    window: &RangeInclusive<u64>,
) -> (Report, Vec<SteadyStep<'a>>) {
    let reference = &records[0];
    let wanted = |index: usize| window.contains(&(index as u64));
    let ranks = ranks(records);
    let mut warnings: Vec<String> = records
        .iter()
        .flat_map(|record| record.warnings.iter().cloned())
        .collect();

    let partial = partial(reference);
    let whole: Vec<usize> = (0..partial.len())
        .filter(|&index| wanted(index) && !partial[index])
        .collect();
    let lengths: Vec<f64> = whole
        .iter()
        .map(|&index| summary::ms(reference.steps[index].span.ns()))
        .collect();
    let startup_steps = changepoint::startup_steps(&lengths);
    let (starting, settled) = whole.split_at(startup_steps);
    let first_steady = if startup_steps == 0 {
        usize::try_from(*window.start()).unwrap_or(usize::MAX)
    } else {
        settled.first().copied().unwrap_or(0)
    };
    let step_ms = median(&mut lengths[startup_steps..].to_vec());
    let readiness = Readiness::new(records, ranks, step_ms * 1e6);
    let measured = Measured::new(reference, &readiness);
    let startup = measured.summary(0, starting);
    let steady = measured.summary(first_steady, settled);
    let is_settled = |index: usize| settled.binary_search(&index).is_ok();
    let steps = steady::steps(reference, |index, _| is_settled(index), &readiness);
    let began = settled
        .first()
        .map_or(i64::MAX, |&index| reference.steps[index].span.began);
    let ended = settled
        .last()
        .map_or(i64::MAX, |&index| reference.steps[index].span.ended);
    let in_force = fusion::in_force(reference, began, ended);
    let fusion = fusion::fusion(reference, &steps, in_force);

    let negotiate_ms = |samples: &[(usize, f64)], counts: &dyn Fn(usize) -> bool| {
        let counted = samples.iter().filter(|&&(step, _)| counts(step));
        Quantiles::some(counted.map(|(_, ns)| ns / 1e6))
    };
    let negotiate_cached_ms = negotiate_ms(&reference.negotiated_cached, &is_settled);
    // New tensors occur in the first steps, which are not steady.
    let negotiate_uncached_ms = negotiate_ms(&reference.negotiated_uncached, &wanted);
    let negotiate = negotiate_cached_ms.or(negotiate_uncached_ms);
    let whatif = fusion.as_ref().zip(negotiate);
    let whatif = whatif.and_then(|(fusion, negotiate)| {
        whatif::model(&steps, fusion, reference.source.format, negotiate)
    });
    let clock_error_ns = records
        .iter()
        .filter_map(|record| Some(record.source.clock?.error_ns))
        .max();
    let clock_error_ns = clock_error_ns.unwrap_or(0);
    let stragglers = stragglers::stragglers(
        reference,
        &steps,
        ranks,
        clock_error_ns,
        whatif.as_ref().filter(|whatif| whatif.reproduces()),
    );

    let waits_for_data = steady.as_ref().is_some_and(|steady| {
        let mut parts = steady.parts.iter();
        parts.any(|part| part.kind == PartKind::Prepare && part.total_ms.p50 > 0.0)
    });
    let unrecorded = unrecorded(reference, &steps);
    let ranks_known = ranks_known(records, ranks);
    let files_missing = !ranks_known || records.len() < ranks as usize;
    warn(
        &mut warnings,
        records,
        &whole,
        waits_for_data,
        files_missing,
    );
    warn_of_unrecorded(&mut warnings, unrecorded);
    if in_force.changed {
        warnings.push(
            "fusion threshold or cycle time changed within the steady steps (tuning?): the figures are of several settings".into(),
        );
    }
    let mut report = Report {
        ronde_timeline: REPORT_VERSION,
        sources: records.iter().map(sources::source).collect(),
        ranks,
        ranks_unknown: !ranks_known,
        compute_includes_waiting: unrecorded.negotiation > UNRECORDED_LEAST,
        reference_rank: reference.rank(),
        steps_found_by: reference.found_by,
        steps: (0..)
            .zip(&measured.steps)
            .filter(|(index, _)| wanted(*index))
            .map(|(index, facts)| summary::step(index, facts, partial[index]))
            .collect(),
        startup,
        steady,
        stragglers,
        fusion,
        bandwidth: bandwidth::bandwidth(reference, &steps),
        tensors: tensors::tensors(reference, &steps, ranks),
        negotiate_cached_ms,
        negotiate_uncached_ms,
        advice: Vec::new(),
        withheld: None,
        stages: stages::stages(reference, &steps),
        lanes: lanes::lanes(records, &readiness, ranks, settled, step_ms),
        warnings,
    };
    let fusion = report.fusion.as_ref();
    let evidence = evidence::of(records, fusion, whatif.as_ref(), in_force.changed);
    (report.advice, report.withheld) = advice::advice(&report, whatif.as_ref(), &evidence);
    (report, steps)
}

/// Whether `ranks` is the number of ranks of the job: a file states it, or has the ticks of all ranks,
/// or there are files of all ranks up to the highest.
fn ranks_known(records: &[RankRecord], ranks: u32) -> bool {
    let has_all_ticks = |record: &RankRecord| {
        record.source.format == Format::Horovod && record.counters.ranks() > 0
    };
    let stated = |record: &RankRecord| record.source.size.is_some() || has_all_ticks(record);
    records.iter().any(stated) || (records.len() > 1 && records.len() == ranks as usize)
}

/// Number of ranks of the job, as far as the files state it.
fn ranks(records: &[RankRecord]) -> u32 {
    let told = records.iter().map(|record| {
        let size = record.source.size.unwrap_or(0);
        size.max(record.counters.ranks())
            .max(record.rank().saturating_add(1))
    });
    // A larger size is damaged; memory must not be allocated for it.
    told.max().unwrap_or(1).clamp(1, 1 << 16)
}

/// Returns for each step whether it is excluded from summaries.
fn partial(record: &RankRecord) -> Vec<bool> {
    let steps = &record.steps;
    let inner: Vec<&Facts> = steps
        .iter()
        .filter(|facts| facts.cut == Cut::Whole)
        .collect();
    let mut times: HashMap<u64, usize> = HashMap::new();
    inner
        .iter()
        .for_each(|facts| *times.entry(facts.signature).or_default() += 1);
    let usual = times
        .into_iter()
        .max_by_key(|&(signature, times)| (times, signature));
    let usual = usual.filter(|&(_, times)| times as f64 >= USUAL_SHARE * inner.len() as f64);
    let bytes = median(
        &mut inner
            .iter()
            .map(|facts| facts.bytes as f64)
            .collect::<Vec<_>>(),
    );
    let ms = median(
        &mut inner
            .iter()
            .map(|facts| facts.span.ns() as f64)
            .collect::<Vec<_>>(),
    );
    let odd = |facts: &Facts| match usual {
        // Of two steps, neither is untypical.
        _ if inner.len() < 3 => facts.tensors == 0,
        Some((signature, _)) => facts.signature != signature,
        None => (facts.bytes as f64 - bytes).abs() > BYTES_OFF * bytes,
    };
    let partial: Vec<bool> = steps
        .iter()
        .map(|facts| match facts.cut {
            Cut::Ended => true,
            // The start of this step is missing, so it was longer than recorded: it is used only if
            // it is still as long as the median. A profiler starts with the step, so nothing is
            // missing.
            Cut::Begun if inner.is_empty() => false,
            Cut::Begun => odd(facts) || ((facts.span.ns() as f64) < ms && !record.work.is_known()),
            Cut::Whole => odd(facts),
        })
        .collect();
    if partial.iter().all(|&partial| partial) {
        // Incomplete steps are used if there are no others.
        return steps.iter().map(|facts| facts.tensors == 0).collect();
    }
    partial
}

/// Shares of the steady operations whose ready times the file does not have.
#[derive(Clone, Copy, Debug, Default)]
struct Unrecorded {
    /// Without this rank's ready time, but with a negotiation.
    ready: f64,
    /// Without any ready time and negotiation.
    negotiation: f64,
}

/// Minimum share that is worth a warning.
const UNRECORDED_LEAST: f64 = 0.05;

fn unrecorded(reference: &RankRecord, steady: &[SteadyStep<'_>]) -> Unrecorded {
    let ops = || {
        let batches = steady.iter().flat_map(|step| &step.batches);
        batches.flat_map(|batch| batch.members)
    };
    if !reference.batcher.fuses {
        return Unrecorded::default();
    }
    let share = |is: &dyn Fn(&Op) -> bool| {
        let found = ops().filter(|op| is(op)).count();
        found as f64 / ops().count().max(1) as f64
    };
    let has_none = |op: &Op| op.ticks.is_empty() && op.negotiation.is_none();
    Unrecorded {
        ready: share(&|op| ready_here(reference, op).is_none() && !has_none(op)),
        negotiation: share(&has_none),
    }
}

/// Warns of parts that contain others, because the file does not have the times between them.
fn warn_of_unrecorded(warnings: &mut Vec<String>, unrecorded: Unrecorded) {
    const WHEN: &str = "(Horovod writes it only before a tensor is in the response cache)";
    if unrecorded.ready > UNRECORDED_LEAST {
        warnings.push(format!(
            "the file does not contain this rank's ready time for {} of the steady operations {WHEN}. The ready time of the \
             first rank is used instead, so waiting for other ranks is overestimated; late ranks are known for the other \
             operations only",
            percent(unrecorded.ready),
        ));
    }
    if unrecorded.negotiation > UNRECORDED_LEAST {
        warnings.push(format!(
            "the file contains no negotiation for {} of the steady operations {WHEN}. Their waiting for other ranks and \
             their negotiation are part of the computation here",
            percent(unrecorded.negotiation),
        ));
    }
}

/// Adds warnings that limit the validity of the report.
fn warn(
    warnings: &mut Vec<String>,
    records: &[RankRecord],
    whole: &[usize],
    waits_for_data: bool,
    files_missing: bool,
) {
    let reference = &records[0];
    if reference.counters.operations == 0 {
        warnings.push(
            "the file contains no collective operation, so there is nothing to analyse".into(),
        );
        return;
    }
    if reference.found_by == StepsFoundBy::Nothing {
        warnings.push(format!(
            "no steps were found, because no tensor name and no sequence of operations is repeated: the whole file counts as one step; record more steps{}",
            match reference.source.format {
                Format::Ronde => ", or mark steps (ctx.mark_step())",
                Format::Kineto => ", or mark steps (profiler.step())",
                Format::Horovod | Format::Byteps => "",
            }
        ));
    } else if whole.is_empty() {
        warnings.push(
            "every step has other operations in between, or is cut off by the start or the end of the file: there is no summary"
                .into(),
        );
    } else if whole
        .iter()
        .all(|&index| reference.steps[index].cut != Cut::Whole)
    {
        warnings.push(
            "no complete step was recorded: the steps shown are cut off by the start or the end of the file"
                .into(),
        );
    } else if whole.len() < 10 {
        warnings.push(format!(
            "only {} complete step{}: medians are inaccurate and high percentiles not meaningful; record 20 steps or more",
            whole.len(),
            if whole.len() == 1 { "" } else { "s" }
        ));
    }
    for record in records {
        if record.source.dropped_cycles > 0 {
            warnings.push(format!(
                "the recorder of rank {} dropped {} cycles: steps with missing tensors are left out",
                record.rank(),
                record.source.dropped_cycles
            ));
        }
    }
    for record in &records[1..] {
        if !evidence::overlap_in_time(reference, record) {
            warnings.push(format!(
                "{} and {} were not recorded at the same time and may be of different jobs",
                record.source.path.display(),
                reference.source.path.display()
            ));
        }
        if record.source.shift_to(&reference.source).is_none() {
            warnings.push(format!(
                "{} does not state its clock, so its times are not compared with those of rank {}",
                record.source.path.display(),
                reference.rank()
            ));
        }
    }
    let by_wall_clock = |record: &RankRecord| {
        let compared = record.source.clock.is_some() && reference.source.clock.is_some();
        !compared && record.source.shift_to(&reference.source).is_some()
    };
    if records[1..].iter().any(by_wall_clock) {
        warnings.push(
            "ranks are compared by the wall clocks of their hosts, which may differ by milliseconds: if they are on several hosts, \
             a rank can look late for that reason"
                .into(),
        );
    }
    if let Some(record) = records.iter().find(|record| record.source.host_only) {
        warnings.push(format!(
            "{} has no GPU events: computation and collectives are those of the host",
            record.source.path.display()
        ));
    } else if reference.source.format == Format::Kineto && files_missing {
        warnings.push(
            "in a profiler's trace, the time of a collective includes waiting for other ranks; give the files of all ranks to \
             separate the two"
                .into(),
        );
    } else if reference.source.format == Format::Byteps {
        let pushes = |name: &str| name.rsplit('.').next() == Some("PUSH");
        let mut stages = records.iter().flat_map(|record| {
            record
                .counters
                .activities
                .keys()
                .map(|&name| record.name(name))
        });
        if waits_for_data && !stages.any(pushes) {
            warnings.push(
                "this worker has no PUSH stage (the root of its machine pushes): that time appears here as waiting for data, \
                 between the stages"
                    .into(),
            );
        }
    }
}
