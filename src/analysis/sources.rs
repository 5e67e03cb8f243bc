//! What each file holds.

use super::collect::{Counters, RankRecord};
use super::report::{ActivityRow, SourceReport};
use crate::trace::{Format, Kind};

/// What Horovod calls an operation's bar.
pub(super) const fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Allreduce => "ALLREDUCE",
        Kind::Adasum => "ADASUM",
        Kind::Allgather => "ALLGATHER",
        Kind::Broadcast => "BROADCAST",
        Kind::Alltoall => "ALLTOALL",
        Kind::Reducescatter => "REDUCESCATTER",
        Kind::Join => "JOIN",
        Kind::Barrier => "BARRIER",
        Kind::PointToPoint => "POINT_TO_POINT",
        Kind::Other => "OTHER",
    }
}

/// What `record`'s file holds.
pub(super) fn source(record: &RankRecord) -> SourceReport {
    let source = &record.source;
    let mut kinds: Vec<(Kind, u64)> = record
        .counters
        .kinds
        .iter()
        .map(|(&kind, &count)| (kind, count))
        .collect();
    kinds.sort_by_key(|&(kind, count)| (std::cmp::Reverse(count), kind));
    SourceReport {
        path: source.path.display().to_string(),
        format: source.format,
        rank: source.rank,
        events: source.events,
        operations: record.counters.operations,
        tensors: record.travelled.iter().filter(|&&travelled| travelled).count() as u64,
        cycles: record.marks.cycles,
        span_ms: record.counters.span_ns() as f64 / 1e6,
        dropped_cycles: source.dropped_cycles,
        clock: source.clock.map(|clock| crate::trace::Clock {
            drift_ppm: if clock.drift_ppm.is_finite() {
                clock.drift_ppm
            } else {
                0.0
            },
            ..clock
        }),
        warnings: source.warnings.clone(),
        kinds,
        activities: activities(record, &record.counters),
    }
}

fn activities(record: &RankRecord, counters: &Counters) -> Vec<ActivityRow> {
    let row = |name: String, bars: super::collect::Bars| ActivityRow {
        name,
        count: bars.count,
        total_ms: bars.total_ns as f64 / 1e6,
    };
    let negotiations = counters
        .negotiations
        .iter()
        .map(|(&kind, &bars)| row(format!("NEGOTIATE_{}", kind_name(kind)), bars));
    // Horovod's format has a bar for the whole operation, BytePS's a row called so; a profiler has only kernels.
    let executions = counters
        .executions
        .iter()
        .filter_map(|(&kind, &bars)| match record.source.format {
            Format::Horovod | Format::Ronde => Some(row(kind_name(kind).to_owned(), bars)),
            Format::Byteps => Some(row("total".to_owned(), bars)),
            Format::Kineto => None,
        });
    let named = counters
        .activities
        .iter()
        .map(|(&name, &bars)| row(record.name(name).to_owned(), bars));
    let mut rows: Vec<ActivityRow> = negotiations.chain(executions).chain(named).collect();
    rows.sort_by(|a, b| b.total_ms.total_cmp(&a.total_ms).then(a.name.cmp(&b.name)));
    rows
}
