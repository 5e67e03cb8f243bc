//! Stages of BytePS in the steady steps: time of each, and overlap with the others.

use std::collections::BTreeMap;

use super::collect::RankRecord;
use super::report::StageRow;
use super::steady::SteadyStep;
use crate::{Format, NameId, Span};

/// One row for each stage, sorted by descending time. Empty for other formats.
pub(super) fn stages(record: &RankRecord, steps: &[SteadyStep<'_>]) -> Vec<StageRow> {
    if record.source.format != Format::Byteps || steps.is_empty() {
        return Vec::new();
    }
    let mut spans: BTreeMap<NameId, Vec<Span>> = BTreeMap::new();
    let members = steps.iter().flat_map(|step| &step.batches);
    for op in members.flat_map(|batch| batch.members) {
        for activity in op.earlier.iter().chain(&op.activities) {
            spans.entry(activity.name).or_default().push(activity.span);
        }
    }
    let count = steps.len() as f64;
    let ms = |ns: u64| ns as f64 / 1e6 / count;
    let mut rows: Vec<StageRow> = sweep(&spans)
        .into_iter()
        .map(|(name, [under_way, overlapped])| {
            let spans = &spans[&name];
            StageRow {
                name: record.name(name).to_owned(),
                rows: spans.len() as f64 / count,
                total_ms: ms(spans.iter().map(|span| span.ns()).sum()),
                under_way_ms: ms(under_way),
                overlap: overlapped as f64 / (under_way as f64).max(1.0),
            }
        })
        .collect();
    rows.sort_by(|a, b| {
        b.under_way_ms
            .total_cmp(&a.under_way_ms)
            .then(a.name.cmp(&b.name))
    });
    rows
}

/// For each name, nanoseconds with one of its spans in progress, and the part of them with a span
/// of another name in progress too.
fn sweep(spans: &BTreeMap<NameId, Vec<Span>>) -> BTreeMap<NameId, [u64; 2]> {
    let mut edges: Vec<(i64, NameId, i32)> = Vec::new();
    for (&name, spans) in spans {
        for span in spans {
            edges.extend([(span.began, name, 1), (span.ended, name, -1)]);
        }
    }
    edges.sort_unstable_by_key(|edge| edge.0);
    let mut times: BTreeMap<NameId, [u64; 2]> = spans.keys().map(|&name| (name, [0; 2])).collect();
    let mut open: BTreeMap<NameId, i32> = BTreeMap::new();
    let mut at = i64::MIN;
    for (time, name, change) in edges {
        if time > at {
            let ns = time.abs_diff(at);
            let overlapped = if open.len() > 1 { ns } else { 0 };
            for name in open.keys() {
                if let Some(times) = times.get_mut(name) {
                    times[0] += ns;
                    times[1] += overlapped;
                }
            }
            at = time;
        }
        let count = open.entry(name).or_default();
        *count += change;
        if *count == 0 {
            open.remove(&name);
        }
    }
    times
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlap_by_hand() {
        let span = |began, ended| Span { began, ended };
        let spans = BTreeMap::from([
            (NameId(0), vec![span(0, 10), span(5, 15)]),
            (NameId(1), vec![span(12, 20)]),
        ]);
        let times = sweep(&spans);
        assert_eq!(times[&NameId(0)], [15, 3]);
        assert_eq!(times[&NameId(1)], [8, 3]);
    }
}
