//! Progress display of a sweep: on a terminal a bar with the remaining time, else a line at
//! intervals.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;

use crate::present::bar;
use crate::present::units::{counted, duration};
use crate::setting::numbers;
use ronde_lab::sweep::order::Task;
use ronde_lab::sweep::{Phase, Point, Row, SoFar};

/// Interval of the lines if standard error is not a terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

const TEMPLATE: &str = "{prefix} {bar:24} {pos}/{len} {wide_msg}";

/// Progress display of a sweep.
pub(super) struct Display {
    bar: Option<ProgressBar>,
    began: Instant,
    /// Whether there are several numbers of ranks, so that the current one is shown.
    has_ranks: bool,
    /// Number of rows from before this process.
    rows_before: usize,
    line_at: Instant,
}

impl Display {
    /// Creates a display for a sweep with these numbers of ranks that has `rows_before`.
    pub(super) fn new(np: &[u32], rows_before: usize) -> Self {
        let now = Instant::now();
        Self {
            bar: bar(TEMPLATE, None),
            began: now,
            has_ranks: np.len() > 1,
            rows_before,
            line_at: now,
        }
    }

    /// Shows that `task` is measured, after `rows`. `left` is the number of remaining measurements,
    /// including this one; `within` is the rest of the budget.
    pub(super) fn measuring(
        &mut self,
        task: &Task,
        rows: &[Row],
        left: usize,
        within: Option<Duration>,
    ) {
        let time_left = self.time_left(rows.len(), left, within);
        if let Some(bar) = &self.bar {
            bar.set_length((rows.len() + left) as u64);
            bar.set_position(rows.len() as u64);
            bar.set_prefix(self.phase(task));
            bar.set_message(message(task, rows, time_left));
        } else if self.line_at.elapsed() >= LINE_EVERY && rows.len() > self.rows_before {
            self.line_at = Instant::now();
            let line = format!(
                "ronde: sweep: {} of {} measured, {}: {}",
                rows.len(),
                rows.len() + left,
                self.phase(task),
                message(task, rows, time_left)
            );
            // An error is ignored: a closed standard error is no reason to stop.
            let _ = writeln!(io::stderr(), "{line}");
        }
    }

    /// Redraws the bar during a measurement.
    pub(super) fn tick(&self) {
        if let Some(bar) = &self.bar {
            bar.tick();
        }
    }

    /// Estimated time for the remaining measurements, at the speed so far.
    fn time_left(&self, rows: usize, left: usize, within: Option<Duration>) -> Option<Duration> {
        let measured = rows
            .checked_sub(self.rows_before)
            .filter(|measured| *measured > 0);
        let at_this_speed = measured.map(|measured| {
            let share = left as f64 / measured as f64;
            Duration::from_secs_f64(self.began.elapsed().as_secs_f64() * share)
        });
        match (at_this_speed, within) {
            (Some(time), Some(within)) => Some(time.min(within)),
            (time, within) => time.or(within),
        }
    }

    fn phase(&self, task: &Task) -> String {
        let phase = match task.phase {
            Phase::Grid => format!("block {}", task.block + 1),
            Phase::Confirm => "confirming".to_owned(),
            Phase::Verify => "verifying".to_owned(),
            Phase::Predicted => "predicting".to_owned(),
        };
        match self.has_ranks {
            true => format!("{phase}, {}", counted(task.point.np.into(), "rank")),
            false => phase,
        }
    }
}

/// Text of the bar: the remaining time, the best setting so far, and the current measurement.
fn message(task: &Task, rows: &[Row], time_left: Option<Duration>) -> String {
    let mut parts = Vec::new();
    if let Some(time_left) = time_left {
        parts.push(format!("{} left", duration(time_left.as_secs_f64())));
    }
    if let Some((point, ms)) = SoFar::new(rows.iter(), task.point.np).best {
        parts.push(format!("best so far {ms:.2} ms with {}", setting(&point)));
    }
    parts.push(format!("now {}", setting(&task.point)));
    parts.join(" · ")
}

/// Short text of a point, without its number of ranks.
fn setting(point: &Point) -> String {
    let cache = if point.cache { "" } else { ", no cache" };
    numbers(point) + cache
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_in_words() {
        let point = Point {
            fusion_threshold_bytes: 1 << 19,
            cycle_time_ms: 2.5,
            cache: false,
            ..Point::default_of(4)
        };
        assert_eq!(setting(&point), "0.5 MiB, 2.5 ms, no cache");
    }

    #[test]
    fn the_time_left_is_no_longer_than_the_budget() {
        let display = Display::new(&[2], 10);
        assert_eq!(
            display.time_left(10, 50, None),
            None,
            "nothing is known yet"
        );
        let within = Some(Duration::from_secs(5));
        assert_eq!(display.time_left(10, 50, within), within);
        assert!(
            display
                .time_left(11, 50, Some(Duration::ZERO))
                .unwrap()
                .is_zero()
        );
    }
}
