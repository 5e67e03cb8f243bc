//! Summary of many runs: Markdown for people, JSON for programs.

use serde::Serialize;

use super::outcome::Outcome;

/// Summary of one tuner on one truth.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Row {
    pub(crate) truth: String,
    pub(crate) tuner: String,
    pub(crate) runs: usize,
    pub(crate) end_median: f64,
    pub(crate) end_p90: f64,
    pub(crate) end_mean: f64,
    /// Runs that ended more than 1 % worse than the default, and the worst of all as a multiple of
    /// the default.
    pub(crate) worse: usize,
    pub(crate) worst: f64,
    pub(crate) within_3: Within,
    pub(crate) within_5: Within,
    pub(crate) lost_500_median: f64,
    pub(crate) lost_500_mean: f64,
    pub(crate) lost_2000_median: f64,
    pub(crate) lost_2000_mean: f64,
    pub(crate) lost_mean_pct: f64,
    /// Runs that searched at step 3,000, and that had reverted a verdict by then.
    pub(crate) searching: usize,
    pub(crate) reverted: usize,
    /// Intervals of the gain, and those that contain the true gain.
    pub(crate) intervals: usize,
    pub(crate) covered: usize,
    pub(crate) active_median: f64,
    pub(crate) active_p90: f64,
    pub(crate) asked_ms_p50: Option<f64>,
    pub(crate) asked_ms_p99: Option<f64>,
    pub(crate) modelled_ms_p50: Option<f64>,
    pub(crate) modelled_ms_p99: Option<f64>,
}

/// Steps until a run stays close to the best; `None` if too few runs got there.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Within {
    pub(crate) median: Option<f64>,
    pub(crate) p90: Option<f64>,
    /// Share of the runs that get there.
    pub(crate) ever: f64,
}

impl Within {
    fn new(steps: &[Option<usize>]) -> Self {
        // Runs that never get there are last.
        let all: Vec<f64> = steps
            .iter()
            .map(|step| step.map_or(f64::INFINITY, |step| step as f64))
            .collect();
        let at = |share: f64| Some(quantile(&all, share)).filter(|steps| steps.is_finite());
        Self {
            median: at(0.5),
            p90: at(0.9),
            ever: steps.iter().flatten().count() as f64 / steps.len() as f64,
        }
    }

    fn text(&self) -> String {
        let steps =
            |steps: Option<f64>| steps.map_or("never".into(), |steps| format!("{steps:.0}"));
        format!(
            "{} / {} ({:.0} %)",
            steps(self.median),
            steps(self.p90),
            100.0 * self.ever
        )
    }
}

/// Quantile of the values, interpolated; 0 if there are none.
pub(crate) fn quantile(values: &[f64], share: f64) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let place = share * (values.len().max(1) - 1) as f64;
    let (low, high) = (place.floor() as usize, place.ceil() as usize);
    match (values.get(low), values.get(high)) {
        (Some(below), Some(above)) if below < above => below + (above - below) * place.fract(),
        (Some(below), Some(_)) => *below,
        _ => 0.0,
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

impl Row {
    /// Summarises at least one run of one tuner on one truth.
    pub(crate) fn new(outcomes: &[&Outcome]) -> Self {
        let of = |value: fn(&Outcome) -> f64| -> Vec<f64> {
            outcomes.iter().map(|o| value(o)).collect()
        };
        let end = of(|o| o.end);
        let active = of(|o| o.active as f64);
        let (lost_500, lost_2000) = (of(|o| o.lost_500), of(|o| o.lost_2000));
        let took = |ms: fn(&Outcome) -> &[f64], share: f64| {
            let all: Vec<f64> = outcomes.iter().flat_map(|o| ms(o)).copied().collect();
            (!all.is_empty()).then(|| quantile(&all, share))
        };
        Self {
            truth: outcomes[0].truth.clone(),
            tuner: outcomes[0].tuner.clone(),
            runs: outcomes.len(),
            end_median: quantile(&end, 0.5),
            end_p90: quantile(&end, 0.9),
            end_mean: mean(&end),
            worse: outcomes.iter().filter(|o| o.worse()).count(),
            worst: of(|o| o.end / o.default).into_iter().fold(0.0, f64::max),
            within_3: Within::new(&outcomes.iter().map(|o| o.within_3).collect::<Vec<_>>()),
            within_5: Within::new(&outcomes.iter().map(|o| o.within_5).collect::<Vec<_>>()),
            lost_500_median: quantile(&lost_500, 0.5),
            lost_500_mean: mean(&lost_500),
            lost_2000_median: quantile(&lost_2000, 0.5),
            lost_2000_mean: mean(&lost_2000),
            lost_mean_pct: 100.0 * mean(&of(|o| o.lost_mean)),
            searching: outcomes.iter().filter(|o| o.is_searching).count(),
            reverted: outcomes.iter().filter(|o| o.reverted).count(),
            intervals: outcomes.iter().map(|o| o.intervals).sum(),
            covered: outcomes.iter().map(|o| o.covered).sum(),
            active_median: quantile(&active, 0.5),
            active_p90: quantile(&active, 0.9),
            asked_ms_p50: took(|o| &o.asked_ms, 0.5),
            asked_ms_p99: took(|o| &o.asked_ms, 0.99),
            modelled_ms_p50: took(|o| &o.modelled_ms, 0.5),
            modelled_ms_p99: took(|o| &o.modelled_ms, 0.99),
        }
    }

    /// Coverage of the intervals of the gain.
    pub(crate) fn coverage(&self) -> String {
        match self.intervals {
            0 => "none given".to_owned(),
            all => format!("{:.1} % of {all}", 100.0 * self.covered as f64 / all as f64),
        }
    }

    fn text(&self) -> String {
        let took = |p50: Option<f64>, p99: Option<f64>| match (p50, p99) {
            (Some(p50), Some(p99)) => format!("{p50:.1} / {p99:.1}"),
            _ => "-".into(),
        };
        let asked = took(self.asked_ms_p50, self.asked_ms_p99);
        let modelled = took(self.modelled_ms_p50, self.modelled_ms_p99);
        format!(
            "| {} | {} | {:.3} / {:.3} / {:.4} | {} ({:.1} %), {:.3} | {} | {} | {:.0} / {:.1} | {:.0} / {:.1} | {:.2} % | {}, {} | {} | {:.0} / {:.0} | {asked} | {modelled} |",
            self.tuner,
            self.runs,
            self.end_median,
            self.end_p90,
            self.end_mean,
            self.worse,
            100.0 * self.worse as f64 / self.runs as f64,
            self.worst,
            self.within_3.text(),
            self.within_5.text(),
            self.lost_500_median,
            self.lost_500_mean,
            self.lost_2000_median,
            self.lost_2000_mean,
            self.lost_mean_pct,
            self.searching,
            self.reverted,
            self.coverage(),
            self.active_median,
            self.active_p90,
        )
    }
}

const HEADER: &str = "| tuner | runs | end / best: median / p90 / mean | > 1 % worse than default; worst / default | steps to ≤ 3 % for good: median / p90 (ever) | to ≤ 5 % | lost in 500: median / mean | lost in 2,000: median / mean | loss per step over 3,000: mean | at step 3,000: searching, reverted before | intervals of the gain that hold | steps to the first verdict: median / p90 | ask, ms of CPU: p50 / p99 | its model: p50 / p99 |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |";

/// Removes repetitions and keeps the order.
fn distinct<'a>(values: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = Vec::new();
    values.for_each(|value| {
        if !seen.contains(&value) {
            seen.push(value);
        }
    });
    seen
}

/// Returns a row for each truth and tuner.
pub(crate) fn rows(outcomes: &[Outcome]) -> Vec<Row> {
    let mut rows = Vec::new();
    for truth in distinct(outcomes.iter().map(|o| o.truth.as_str())) {
        let here: Vec<&Outcome> = outcomes.iter().filter(|o| o.truth == truth).collect();
        for tuner in distinct(here.iter().map(|o| o.tuner.as_str())) {
            let runs: Vec<&Outcome> = here.iter().filter(|o| o.tuner == tuner).copied().collect();
            rows.push(Row::new(&runs));
        }
    }
    rows
}

/// Header of the table of coverage.
pub(crate) const COVERAGE_HEADER: &str = "| truth | tuner | runs | end / best: mean | > 1 % worse than default | intervals of the gain that hold |
| --- | --- | --- | --- | --- | --- |";

/// Formats a row of the table of coverage.
pub(crate) fn coverage(row: &Row) -> String {
    format!(
        "| {} | {} | {} | {:.4} | {} | {} |",
        row.truth,
        row.tuner,
        row.runs,
        row.end_mean,
        row.worse,
        row.coverage()
    )
}

/// Formats the table of all surfaces together, for each truth.
pub(crate) fn summary(outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    let rows = rows(outcomes);
    for truth in distinct(outcomes.iter().map(|o| o.truth.as_str())) {
        text += &format!("## {truth}\n\n{HEADER}\n");
        for row in rows.iter().filter(|row| row.truth == truth) {
            text += &row.text();
            text.push('\n');
        }
        text.push('\n');
    }
    text
}

/// Formats the tables: all surfaces together, then each one.
pub(crate) fn markdown(outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    for truth in distinct(outcomes.iter().map(|o| o.truth.as_str())) {
        let here: Vec<Outcome> = outcomes
            .iter()
            .filter(|o| o.truth == truth)
            .cloned()
            .collect();
        text += &summary(&here);
        text +=
            "Each surface: end / best, median / p90; in brackets the mean lost in 2,000 steps.\n\n";
        text += &by_surface(
            &outcomes
                .iter()
                .filter(|o| o.truth == truth)
                .collect::<Vec<_>>(),
        );
        text.push('\n');
    }
    text
}

fn by_surface(outcomes: &[&Outcome]) -> String {
    let tuners = distinct(outcomes.iter().map(|o| o.tuner.as_str()));
    let mut text = format!("| surface | {} |\n| --- |", tuners.join(" | "));
    text += &" --- |".repeat(tuners.len());
    for surface in distinct(outcomes.iter().map(|o| o.surface.as_str())) {
        text += &format!("\n| {surface} |");
        for tuner in &tuners {
            let runs: Vec<&&Outcome> = outcomes
                .iter()
                .filter(|o| o.surface == surface && o.tuner == *tuner)
                .collect();
            let end: Vec<f64> = runs.iter().map(|o| o.end).collect();
            let lost: Vec<f64> = runs.iter().map(|o| o.lost_2000).collect();
            if runs.is_empty() {
                text += " - |";
                continue;
            }
            let (median, p90) = (quantile(&end, 0.5), quantile(&end, 0.9));
            text += &format!(" {median:.3} / {p90:.3} ({:.0}) |", mean(&lost));
        }
    }
    text.push('\n');
    text
}

/// Hash of the runs, independent of the machine and of their durations (FNV-1a).
pub(crate) fn hash(outcomes: &[Outcome]) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    let mut take = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    for outcome in outcomes {
        for text in [
            &outcome.tuner,
            &outcome.truth,
            &outcome.surface,
            &outcome.setting,
        ] {
            take(text.as_bytes());
        }
        take(&outcome.seed.to_le_bytes());
        for value in [outcome.end, outcome.lost_500, outcome.lost_2000] {
            take(&value.to_bits().to_le_bytes());
        }
        take(&(outcome.active as u64).to_le_bytes());
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(end: f64, within: Option<usize>) -> Outcome {
        Outcome {
            tuner: "t".into(),
            truth: "lab".into(),
            surface: "s".into(),
            seed: 1,
            end,
            default: 1.05,
            active: 50,
            lost_mean: 0.01,
            is_searching: false,
            reverted: false,
            intervals: 1,
            covered: 1,
            changes: 3,
            lost_500: 4.0,
            lost_2000: 10.0,
            within_3: within,
            within_5: within,
            setting: "x".into(),
            asked_ms: vec![1.0, 3.0],
            modelled_ms: Vec::new(),
        }
    }

    #[test]
    fn a_row_by_hand() {
        let outcomes = [
            outcome(1.0, Some(10)),
            outcome(1.02, Some(30)),
            outcome(1.04, Some(50)),
            outcome(1.10, None),
        ];
        let row = &rows(&outcomes)[0];
        assert_eq!((row.runs, row.worse), (4, 1));
        assert!((row.end_median - 1.03).abs() < 1e-12);
        assert!((row.end_p90 - 1.082).abs() < 1e-12); // 0.7 of the way from 1.04 to 1.10
        assert!((row.end_mean - 1.04).abs() < 1e-12);
        assert_eq!(
            (row.within_3.median, row.within_3.p90, row.within_3.ever),
            (Some(40.0), None, 0.75)
        );
        assert_eq!(row.asked_ms_p50, Some(2.0));
        let text = markdown(&outcomes);
        assert!(
            text.contains(
                "| t | 4 | 1.030 / 1.082 / 1.0400 | 1 (25.0 %), 1.048 | 40 / never (75 %) |"
            ),
            "{text}"
        );
        assert!(text.contains("| s | 1.030 / 1.082 (10) |"), "{text}");
    }

    #[test]
    fn the_hash_tells_results_apart_and_leaves_out_time() {
        let one = [outcome(1.0, None)];
        let mut slow = one.clone();
        slow[0].asked_ms = vec![99.0];
        assert_eq!(hash(&one), hash(&slow));
        assert_ne!(hash(&one), hash(&[outcome(1.0 + f64::EPSILON, None)]));
    }
}
