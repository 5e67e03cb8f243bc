//! Steps of a job as rows, of which older ones are combined so that their number is bounded.

use serde::ser::SerializeTuple;
use serde::{Serialize, Serializer};

use super::tail::{Part, Tail};
use crate::{Step, Window};

/// Most rows.
const ROWS_MAX: usize = 2048;
/// The newest rows, which are not combined.
const ROWS_NEW: usize = 512;
/// Most rows of the older steps after they have been combined.
const ROWS_OLD: usize = 768;
/// Rows between two updates from which on steps at equal settings share a row.
const ROWS_PER_UPDATE: usize = 40;

/// Steps of a job.
#[derive(Debug, Default)]
pub(super) struct Steps {
    rows: Tail<Row>,
}

/// Consecutive steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Row {
    /// The steps with the averages of their values. Settings and purpose are those of most of them.
    mean: Step,
    /// Number of steps of these settings and purpose.
    alike: u64,
    /// Least and largest value.
    low: f64,
    high: f64,
}

impl Row {
    fn new(step: Step) -> Self {
        Self {
            alike: step.steps,
            low: step.value,
            high: step.value,
            mean: step,
        }
    }

    fn is_like(&self, next: &Self) -> bool {
        (self.mean.window, self.mean.settings) == (next.mean.window, next.mean.settings)
    }

    /// This row and the next one as one row.
    fn with(&self, next: &Self) -> Self {
        let (a, b) = (&self.mean, &next.mean);
        let steps = a.steps + b.steps;
        let share = b.steps as f64 / steps as f64;
        let mean = |a: f64, b: f64| a + (b - a) * share;
        let known = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) => Some(mean(a, b)),
            (one, other) => one.or(other),
        };
        let (main, alike) = match (self.is_like(next), self.alike >= next.alike) {
            (true, _) => (b, self.alike + next.alike),
            (false, true) => (a, self.alike),
            (false, false) => (b, next.alike),
        };
        Self {
            mean: Step {
                step: a.step,
                steps,
                value: mean(a.value, b.value),
                settings: main.settings,
                window: main.window,
                exposed_ms: known(a.exposed_ms, b.exposed_ms),
                negotiation_ms: known(a.negotiation_ms, b.negotiation_ms),
                messages: known(a.messages, b.messages),
                bytes: known(a.bytes, b.bytes),
                fill: known(a.fill, b.fill),
            },
            alike,
            low: self.low.min(next.low),
            high: self.high.max(next.high),
        }
    }
}

impl Steps {
    /// Adds a step; one without a valid value is ignored.
    pub(super) fn push(&mut self, step: Step) {
        if step.steps == 0 || !step.value.is_finite() {
            return;
        }
        let row = Row::new(step);
        let is_full = self.rows.unsent() >= ROWS_PER_UPDATE;
        if let Some(last) = self.rows.last_unsent()
            && is_full
            && last.is_like(&row)
        {
            *last = last.with(&row);
            return;
        }
        self.rows.push(row);
        if self.rows.rows().len() >= ROWS_MAX {
            self.rows.replace(thinned);
        }
    }

    pub(super) fn part(&self, all: bool) -> Option<Part<'_, Row>> {
        self.rows.part(all)
    }

    pub(super) fn sent(&mut self) {
        self.rows.sent();
    }
}

/// Combines the older rows to rows of about equal numbers of steps.
fn thinned(mut rows: Vec<Row>) -> Vec<Row> {
    let newest = rows.split_off(rows.len().saturating_sub(ROWS_NEW));
    let steps: u64 = rows.iter().map(|row| row.mean.steps).sum();
    let most = steps.div_ceil(ROWS_OLD as u64 / 2).max(2);
    // Rows of different settings are combined only if that is necessary.
    let mut old = combined(&rows, |a, b| {
        a.is_like(b) && a.mean.steps + b.mean.steps <= most
    });
    if old.len() > ROWS_OLD {
        old = combined(&old, |a, b| a.mean.steps + b.mean.steps <= most);
    }
    while old.len() > ROWS_OLD {
        let pairs = old.chunks(2);
        old = pairs
            .map(|pair| pair[1..].iter().fold(pair[0], |a, b| a.with(b)))
            .collect();
    }
    old.extend(newest);
    old
}

fn combined(rows: &[Row], may: impl Fn(&Row, &Row) -> bool) -> Vec<Row> {
    let mut combined: Vec<Row> = Vec::new();
    for row in rows {
        match combined.last_mut() {
            Some(last) if may(last, row) => *last = last.with(row),
            _ => combined.push(*row),
        }
    }
    combined
}

/// A row is an array, because thousands of them are sent: step, steps, mean, least and largest
/// value, fusion threshold (bytes), cycle time (ms), switches, window, exposed (ms), negotiation
/// (ms), messages, bytes, fill.
impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Step {
            step,
            steps,
            value,
            settings,
            window,
            exposed_ms,
            negotiation_ms,
            messages,
            bytes,
            fill,
        } = self.mean;
        let window = match window {
            Window::None => 0,
            Window::Default => 1,
            Window::Search => 2,
            Window::AbDefault => 3,
            Window::AbCandidate => 4,
        };
        let mut row = serializer.serialize_tuple(14)?;
        row.serialize_element(&step)?;
        row.serialize_element(&steps)?;
        for value in [value, self.low, self.high] {
            row.serialize_element(&rounded(value))?;
        }
        row.serialize_element(&settings.fusion_threshold_bytes)?;
        row.serialize_element(&(settings.cycle_time_ns as f64 / 1e6))?;
        row.serialize_element(&settings.switches())?;
        row.serialize_element(&window)?;
        for value in [exposed_ms, negotiation_ms, messages, bytes, fill] {
            row.serialize_element(&value.map(rounded))?;
        }
        row.end()
    }
}

/// A number with five significant digits, which is short as text.
pub(super) fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let digits = 4 - value.abs().log10().floor() as i32;
    if digits > 300 {
        return 0.0;
    }
    match digits {
        0.. => (value * 10f64.powi(digits)).round() / 10f64.powi(digits),
        _ => (value / 10f64.powi(-digits)).round() * 10f64.powi(-digits),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::step;

    fn rows(steps: &Steps) -> &[Row] {
        steps.rows.rows()
    }

    #[test]
    fn numbers_have_five_digits() {
        let values = [0.0, 41.234_567, -123_456.0, 1.0 / 3.0, 1e-310, 1.5e300];
        let expected = [0.0, 41.235, -123_460.0, 0.33333, 0.0, 1.5e300];
        for (value, expected) in values.into_iter().zip(expected) {
            let found = rounded(value);
            assert!(
                (found - expected).abs() <= 1e-9 * expected.abs(),
                "{value} {found}"
            );
        }
        assert!(rounded(f64::NAN).is_nan());
    }

    #[test]
    fn a_long_job_keeps_its_sums_its_extremes_and_its_newest_steps() {
        let mut steps = Steps::default();
        let mut sum = 0.0;
        for number in 0..100_000 {
            let mut one = step(number, 10.0 + (number % 7) as f64);
            if number == 40 {
                one.value = 500.0;
            }
            sum += one.value;
            steps.push(one);
            steps.sent();
            assert!(rows(&steps).len() < ROWS_MAX);
        }
        let kept = rows(&steps);
        assert_eq!(kept.iter().map(|row| row.mean.steps).sum::<u64>(), 100_000);
        let total: f64 = kept
            .iter()
            .map(|row| row.mean.value * row.mean.steps as f64)
            .sum();
        assert!((total / sum - 1.0).abs() < 1e-9);
        assert_eq!(kept.iter().map(|row| row.high).fold(0.0, f64::max), 500.0);
        let newest = &kept[kept.len() - ROWS_NEW..];
        assert!(newest.iter().all(|row| row.mean.steps == 1));
        for pair in kept.windows(2) {
            assert_eq!(pair[0].mean.step + pair[0].mean.steps, pair[1].mean.step);
        }
    }

    #[test]
    fn windows_stay_apart_unless_there_are_too_many() {
        let windows = |length: u64, count: u64| {
            let mut steps = Steps::default();
            for number in 0..count {
                let mut one = step(number, 10.0);
                if number / length % 2 == 1 {
                    one.window = Window::AbCandidate;
                }
                steps.push(one);
                steps.sent();
                assert!(rows(&steps).len() < ROWS_MAX);
            }
            let kept = rows(&steps).iter();
            kept.filter(|row| row.alike < row.mean.steps).count()
        };
        assert_eq!(windows(100, 20_000), 0);
        assert!(windows(1, 20_000) > 100);
    }

    #[test]
    fn fast_steps_share_rows_between_updates() {
        let mut steps = Steps::default();
        for number in 0..1000 {
            steps.push(step(number, 1.0));
        }
        assert_eq!(rows(&steps).len(), ROWS_PER_UPDATE);
        let mut other = step(1000, 1.0);
        other.window = Window::Search;
        steps.push(other);
        assert_eq!(rows(&steps).len(), ROWS_PER_UPDATE + 1);
        steps.push(step(1001, f64::NAN));
        let json = serde_json::to_string(&steps.part(true)).unwrap();
        assert!(
            json.starts_with(r#"{"from":0,"rows":[[0,1,1.0,1.0,1.0,134217728,1.0,1,0,"#),
            "{json:.100}"
        );
    }
}
