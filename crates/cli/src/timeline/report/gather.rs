//! Preparation of lanes for drawing: the bars of one batch are merged into one bar, and the rows of
//! each rank show computation first, then data movement, then waiting.
//!
//! A trace has a bar for every tensor. Without merging, a batch of a hundred tensors would show a
//! hundred equal bars.

use ronde_trace::analysis::report::{LaneBar, LaneTick, PartKind, RankBars};

/// Largest difference in ms between the times of two bars of one batch. The recorder writes the
/// events of its tensors one after another.
const NEAR_MS: f64 = 0.02;
/// Largest such difference, relative to the length of the bar.
const NEAR_SHARE: f64 = 0.005;
/// Number of recent batches compared with a bar. Few batches end at the same time but begin at
/// different times.
const RECENT: usize = 16;
/// Largest number of rows for bars of one kind. On a rank with many tensors, hundreds wait at once.
pub(super) const BAND_ROWS: u32 = 10;
/// Bars in this row and the rows below it are not drawn.
pub(super) const MOST_ROWS: u32 = 1_000;
/// Times of at least this magnitude (some years) are invalid.
const FAR_MS: f64 = 1e11;

fn is_valid(ms: f64) -> bool {
    ms.abs() < FAR_MS
}

/// Returns the lanes with one bar for each batch, rows assigned again, and without invalid times.
pub(super) fn gathered(lanes: &[RankBars]) -> Vec<RankBars> {
    let valid = |times: &[f64]| times.iter().copied().filter(|ms| is_valid(*ms)).collect();
    let ticks = |ready: &[LaneTick]| {
        let ready = ready.iter().filter(|tick| is_valid(tick.at_ms));
        ready.cloned().collect()
    };
    let lanes = lanes.iter().map(|lane| RankBars {
        rank: lane.rank,
        step_ends_ms: valid(&lane.step_ends_ms),
        bars: in_rows(batches(&lane.bars)),
        ready: ticks(&lane.ready),
        cycles_ms: valid(&lane.cycles_ms),
    });
    lanes.collect()
}

/// Number of the group of rows for a part, from the top.
fn band(part: PartKind) -> u8 {
    match part {
        PartKind::Compute | PartKind::GpuIdle | PartKind::GpuOther => 0,
        PartKind::Prepare | PartKind::CopyIn | PartKind::Collective | PartKind::CopyOut => 1,
        PartKind::WaitForRanks => 2,
        PartKind::Negotiation => 3,
    }
}

/// Merges the bars of each batch into one.
fn batches(bars: &[LaneBar]) -> Vec<LaneBar> {
    let possible = |bar: &&LaneBar| is_valid(bar.began_ms) && is_valid(bar.ended_ms);
    let mut bars: Vec<&LaneBar> = bars.iter().filter(possible).collect();
    bars.sort_by(|a, b| {
        let order = a.part.cmp(&b.part).then(a.ended_ms.total_cmp(&b.ended_ms));
        order.then(a.began_ms.total_cmp(&b.began_ms))
    });
    let mut batches: Vec<Vec<&LaneBar>> = Vec::new();
    for bar in bars {
        // Compare with the first bar of a batch, not with the bar before: otherwise a long series
        // of small distances would become one batch.
        let mut recent = batches.iter_mut().rev().take(RECENT);
        match recent.find(|batch| together(batch[0], bar)) {
            Some(batch) => batch.push(bar),
            None => batches.push(vec![bar]),
        }
    }
    batches.iter().filter_map(|batch| merged(batch)).collect()
}

/// Whether two bars, neighbours by their ends, belong to one batch. Bars of waiting and negotiation
/// need only end together; all other bars must also begin together.
fn together(a: &LaneBar, b: &LaneBar) -> bool {
    let near = NEAR_MS.max(NEAR_SHARE * (b.ended_ms - b.began_ms));
    let same = |x: f64, y: f64| (x - y).abs() <= near;
    a.part == b.part
        && same(a.ended_ms, b.ended_ms)
        && (band(a.part) >= 2 || same(a.began_ms, b.began_ms))
}

fn merged(bars: &[&LaneBar]) -> Option<LaneBar> {
    let begin = |a: &&&LaneBar, b: &&&LaneBar| a.began_ms.total_cmp(&b.began_ms);
    let first = bars.iter().min_by(begin)?;
    let ends = bars.iter().map(|bar| bar.ended_ms);
    let label = match bars.iter().find(|bar| bar.label != first.label) {
        None => first.label.clone(),
        Some(other) => {
            let what = common_end(&first.label, &other.label);
            let tensor = &first.label[..first.label.len() - what.len()];
            let colon = if what.is_empty() { "" } else { ":" };
            format!("{tensor} and {} more{colon}{what}", bars.len() - 1)
        }
    };
    Some(LaneBar {
        label,
        part: first.part,
        row: 0,
        began_ms: first.began_ms,
        ended_ms: ends.fold(first.began_ms, f64::max),
    })
}

/// Longest common suffix that begins with a space: the activity, without the tensor's name.
fn common_end<'a>(a: &'a str, b: &str) -> &'a str {
    let (mut spaces, mut end) = (a.rmatch_indices(' '), "");
    while let Some((at, _)) = spaces
        .next()
        .filter(|(at, _)| *at > 0 && b.ends_with(&a[*at..]))
    {
        end = &a[at..];
    }
    end
}

/// Assigns each bar, in order of its beginning, to the first free row of its group.
fn in_rows(mut bars: Vec<LaneBar>) -> Vec<LaneBar> {
    let begin = |a: &LaneBar, b: &LaneBar| a.began_ms.total_cmp(&b.began_ms);
    bars.sort_by(|a, b| band(a.part).cmp(&band(b.part)).then(begin(a, b)));
    let mut top = 0;
    for band_bars in bars.chunk_by_mut(|a, b| band(a.part) == band(b.part)) {
        let mut free_from: Vec<f64> = Vec::new();
        for bar in band_bars {
            let free = free_from.iter().position(|ends| *ends <= bar.began_ms);
            let row = free.unwrap_or_else(|| {
                free_from.push(0.0);
                free_from.len() - 1
            });
            free_from[row] = bar.ended_ms;
            // Bars that are not drawn also get rows of their own.
            bar.row = match row as u32 {
                row if row < BAND_ROWS => top + row,
                row => MOST_ROWS + 100_000 * u32::from(band(bar.part)) + row,
            };
        }
        top += (free_from.len() as u32).min(BAND_ROWS);
    }
    bars.sort_by(begin);
    bars
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lane(bars: Vec<LaneBar>) -> RankBars {
        let lane = RankBars {
            rank: 0,
            step_ends_ms: vec![f64::NAN, 5.0],
            bars,
            ready: vec![],
            cycles_ms: vec![],
        };
        gathered(&[lane]).remove(0)
    }

    #[test]
    fn the_bars_of_a_batch_are_merged() {
        use PartKind::{Collective, Compute, WaitForRanks};
        let bars = [
            ("fc.bias waits for ranks", WaitForRanks, 1.0, 3.0),
            ("fc.weight waits for ranks", WaitForRanks, 2.0, 3.001),
            ("conv1 waits for ranks", WaitForRanks, 2.5, 9.0),
            ("fc.bias SHM_ALLREDUCE", Collective, 3.1, 8.0),
            ("fc.weight SHM_ALLREDUCE", Collective, 3.101, 8.001),
            ("alone SHM_ALLREDUCE", Collective, 6.0, 8.0),
            ("computation", Compute, 0.0, 6.0),
            ("odd", Compute, f64::NAN, 6.0),
        ];
        let bars = bars.map(|(label, part, began_ms, ended_ms)| LaneBar {
            label: label.into(),
            part,
            row: 0,
            began_ms,
            ended_ms,
        });
        let lane = lane(bars.into());
        assert_eq!(lane.step_ends_ms, [5.0]);
        let bars = lane.bars.iter();
        let bars = bars.map(|b| (b.label.as_str(), b.row, b.began_ms, b.ended_ms));
        let expected = [
            ("computation", 0, 0.0, 6.0),
            ("fc.bias and 1 more: waits for ranks", 3, 1.0, 3.001),
            ("conv1 waits for ranks", 4, 2.5, 9.0),
            ("fc.bias and 1 more: SHM_ALLREDUCE", 1, 3.1, 8.001),
            ("alone SHM_ALLREDUCE", 2, 6.0, 8.0),
        ];
        assert_eq!(bars.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_common_end_of_two_labels_begins_with_a_space() {
        assert_eq!(common_end("a.bias NCCL", "b.bias NCCL"), " NCCL");
        assert_eq!(common_end("a waits for b", "c waits for b"), " waits for b");
        assert_eq!(common_end("ä x", "a x"), " x");
        assert_eq!(common_end("same", "name"), "");
        assert_eq!(common_end(" x", "b x"), "");
    }

    proptest! {
        #[test]
        fn bars_of_a_row_never_overlap(
            times in prop::collection::vec((0usize..7, 0.0..50.0f64, 0.0..9.0f64), 0..60),
        ) {
            let bars = times.iter().map(|(part, from, length)| LaneBar {
                label: "x".into(),
                part: PartKind::ALL[*part],
                row: 0,
                began_ms: *from,
                ended_ms: from + length,
            });
            let bars = lane(bars.collect()).bars;
            for (i, a) in bars.iter().enumerate() {
                for b in &bars[i + 1..] {
                    let apart = a.ended_ms <= b.began_ms || b.ended_ms <= a.began_ms;
                    prop_assert!(a.row != b.row || apart, "{a:?} {b:?}");
                }
            }
        }
    }
}
