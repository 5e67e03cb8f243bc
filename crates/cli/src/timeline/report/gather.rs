//! Preparation of lanes for drawing: the bars of one batch are merged into one bar, and the rows of
//! each rank show computation first, then data movement, then waiting.
//!
//! A trace has a bar for every tensor. Without merging, a batch of a hundred tensors would show a
//! hundred equal bars.

use ronde_trace::analysis::report::{LaneBar, PartKind, RankBars};

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

/// Returns the lanes with one bar for each batch, rows assigned again, and without invalid times.
pub(super) fn gathered(lanes: &[RankBars]) -> Vec<RankBars> {
    lanes
        .iter()
        .map(|lane| RankBars {
            rank: lane.rank,
            step_ends_ms: lane
                .step_ends_ms
                .iter()
                .copied()
                .filter(|end| end.abs() < FAR_MS)
                .collect(),
            bars: in_rows(batches(&lane.bars)),
            ready: lane
                .ready
                .iter()
                .filter(|tick| tick.at_ms.abs() < FAR_MS)
                .cloned()
                .collect(),
            cycles_ms: lane
                .cycles_ms
                .iter()
                .copied()
                .filter(|at| at.abs() < FAR_MS)
                .collect(),
        })
        .collect()
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
    let possible = |bar: &&LaneBar| bar.began_ms.abs() < FAR_MS && bar.ended_ms.abs() < FAR_MS;
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
    let first = bars
        .iter()
        .min_by(|a, b| a.began_ms.total_cmp(&b.began_ms))?;
    let began_ms = first.began_ms;
    let ended_ms = bars.iter().map(|bar| bar.ended_ms).fold(began_ms, f64::max);
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
        began_ms,
        ended_ms,
    })
}

/// Longest common suffix that begins with a space: the activity, without the tensor's name.
fn common_end<'a>(a: &'a str, b: &str) -> &'a str {
    let same = a
        .bytes()
        .rev()
        .zip(b.bytes().rev())
        .take_while(|(x, y)| x == y)
        .count();
    // A space is one byte, so that the text after it begins at a character boundary.
    let from = a.len() - same;
    match a.bytes().skip(from).position(|byte| byte == b' ') {
        Some(at) if from + at > 0 => &a[from + at..],
        _ => "",
    }
}

/// Assigns each bar, in order of its beginning, to the first free row of its group.
fn in_rows(mut bars: Vec<LaneBar>) -> Vec<LaneBar> {
    bars.sort_by(|a, b| {
        band(a.part)
            .cmp(&band(b.part))
            .then(a.began_ms.total_cmp(&b.began_ms))
    });
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
    bars.sort_by(|a, b| a.began_ms.total_cmp(&b.began_ms));
    bars
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bar(label: &str, part: PartKind, began_ms: f64, ended_ms: f64) -> LaneBar {
        LaneBar {
            label: label.into(),
            part,
            row: 0,
            began_ms,
            ended_ms,
        }
    }

    fn told(bars: Vec<LaneBar>) -> Vec<(String, u32, f64, f64)> {
        let lane = RankBars {
            rank: 0,
            step_ends_ms: vec![f64::NAN, 5.0],
            bars,
            ready: vec![],
            cycles_ms: vec![],
        };
        let mut lanes = gathered(&[lane]);
        assert_eq!(lanes[0].step_ends_ms, [5.0]);
        let lane = lanes.remove(0);
        lane.bars
            .into_iter()
            .map(|b| (b.label, b.row, b.began_ms, b.ended_ms))
            .collect()
    }

    #[test]
    fn a_batch_is_one_bar() {
        use PartKind::{Collective, Compute, WaitForRanks};
        let told = told(vec![
            bar("fc.bias waits for ranks", WaitForRanks, 1.0, 3.0),
            bar("fc.weight waits for ranks", WaitForRanks, 2.0, 3.001),
            bar("conv1 waits for ranks", WaitForRanks, 2.5, 9.0),
            bar("fc.bias SHM_ALLREDUCE", Collective, 3.1, 8.0),
            bar("fc.weight SHM_ALLREDUCE", Collective, 3.101, 8.001),
            bar("alone SHM_ALLREDUCE", Collective, 6.0, 8.0),
            bar("computation", Compute, 0.0, 6.0),
            bar("odd", Compute, f64::NAN, 6.0),
        ]);
        let expected = [
            ("computation", 0, 0.0, 6.0),
            ("fc.bias and 1 more: waits for ranks", 3, 1.0, 3.001),
            ("conv1 waits for ranks", 4, 2.5, 9.0),
            ("fc.bias and 1 more: SHM_ALLREDUCE", 1, 3.1, 8.001),
            ("alone SHM_ALLREDUCE", 2, 6.0, 8.0),
        ];
        assert_eq!(
            told,
            expected.map(|(label, row, from, to)| (label.to_owned(), row, from, to))
        );
    }

    #[test]
    fn what_two_labels_share_begins_with_a_word() {
        assert_eq!(common_end("a.bias NCCL", "b.bias NCCL"), " NCCL");
        assert_eq!(common_end("ä x", "a x"), " x");
        assert_eq!(common_end("same", "name"), "");
        assert_eq!(common_end(" x", "b x"), "");
    }

    proptest! {
        #[test]
        fn bars_of_a_row_never_overlap(times in prop::collection::vec((0usize..7, 0.0..50.0f64, 0.0..9.0f64), 0..60)) {
            let bars = times.iter().map(|(part, from, length)| bar("x", PartKind::ALL[*part], *from, from + length));
            let lanes = gathered(&[RankBars { rank: 0, step_ends_ms: vec![], bars: bars.collect(), ready: vec![], cycles_ms: vec![] }]);
            let bars = &lanes[0].bars;
            for (i, a) in bars.iter().enumerate() {
                for b in &bars[i + 1..] {
                    prop_assert!(a.row != b.row || a.ended_ms <= b.began_ms || b.ended_ms <= a.began_ms, "{a:?} {b:?}");
                }
            }
        }
    }
}
