//! Summaries of the files, for the report.

use super::collect::{Counters, RankRecord};
use super::report::{ActivityRow, SourceReport};
use crate::{Format, Kind, WALL_CLOCK_MIN_NS};

/// Summary of the file of `record`.
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
        recorded_at: source.epoch_ns.and_then(recorded_at),
        events: source.events,
        operations: record.counters.operations,
        tensors: record
            .travelled
            .iter()
            .filter(|&&travelled| travelled)
            .count() as u64,
        cycles: record.marks.cycles,
        span_ms: record.counters.span_ns() as f64 / 1e6,
        dropped_cycles: source.dropped_cycles,
        clock: source.clock.map(|clock| crate::Clock {
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

/// Formats the time `epoch_ns` after 1970 as RFC 3339; `None` if it is not a plausible wall clock.
fn recorded_at(epoch_ns: i64) -> Option<String> {
    let at = jiff::Timestamp::from_nanosecond(i128::from(epoch_ns)).ok()?;
    (epoch_ns >= WALL_CLOCK_MIN_NS).then(|| format!("{at:.3}"))
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
        .map(|(&kind, &bars)| row(format!("NEGOTIATE_{}", kind.name()), bars));
    // Horovod's format has a bar for the whole operation, BytePS's a row; a profiler's trace has
    // only kernels.
    let executions =
        counters
            .executions
            .iter()
            .filter_map(|(&kind, &bars)| match record.source.format {
                Format::Horovod | Format::Ronde => Some(row(kind.name().to_owned(), bars)),
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

#[cfg(test)]
mod tests {
    use super::recorded_at;

    #[test]
    fn wall_clocks_are_told_as_dates() {
        // `date -u -d @1795167892`: Fri Nov 20 09:44:52 UTC 2026.
        let at = recorded_at(1_795_167_892_487_931_000).unwrap();
        assert_eq!(at, "2026-11-20T09:44:52.487Z");
        assert_eq!(recorded_at(0), None);
        assert_eq!(
            recorded_at(86_400_000_000_000),
            None,
            "a clock that counts from the boot"
        );
        assert_eq!(recorded_at(-1), None);
        assert!(recorded_at(i64::MAX).is_some_and(|at| at.starts_with("2262-04-11")));
    }
}
