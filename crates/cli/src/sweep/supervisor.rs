//! Measurement loop of a sweep: chooses the next measurement, requests it and stores it.
//!
//! A failed measurement is stored as failed, and the ranks are restarted. Each measurement is
//! stored before the next one starts, so that none is lost.

use std::time::{Duration, Instant};

use super::channel::MeasurementRequest;
use super::plan::Plan;
use super::progress::Display;
use super::ranks::{Failure, Ranks};
use crate::error::Error;
use crate::interrupt::Interrupt;
use ronde_lab::bench::{Series, SeriesEnd, SeriesTimes};
use ronde_lab::sweep::order::Task;
use ronde_lab::sweep::store::Store;
use ronde_lab::sweep::{Phase, Row, SoFar, Status, StepSummary};

/// Shortest time without a step, in seconds, after which a job counts as hung, however short its
/// steps were.
const HANG_SECONDS: u32 = 30;

/// Factor on the longest step so far: a step that takes longer than this counts as hung.
const HANG_FACTOR: f64 = 20.0;

/// Longest time without a step, in seconds, whatever the step times in the file.
const PATIENCE_SECONDS_MOST: f64 = 3600.0;

/// Consecutive attempts to start the ranks.
const STARTS_MOST: usize = 2;

/// Reason why a sweep ends its measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Halt {
    /// No measurement is left, or none that fits into the budget.
    Done,
    /// The budget is spent.
    Budget,
    /// This signal was received.
    Signal(u8),
}

/// Measurement loop with its state.
pub(super) struct Supervisor<'a> {
    plan: &'a Plan,
    store: &'a mut Store,
    interrupt: &'a Interrupt,
    /// All measurements, including those from before this process.
    pub(super) rows: Vec<Row>,
    /// Duration of the sweep before this process started.
    before: Duration,
    began: Instant,
    least_patience: Duration,
    longest_step_ms: f64,
    ranks: Option<Ranks>,
}

impl<'a> Supervisor<'a> {
    /// Creates the loop with the existing `rows`; `hang_seconds` is the shortest time without a
    /// step after which a job counts as hung.
    pub(super) fn new(
        plan: &'a Plan,
        store: &'a mut Store,
        interrupt: &'a Interrupt,
        rows: Vec<Row>,
        hang_seconds: Option<u32>,
    ) -> Self {
        let before = rows.iter().map(|row| row.at_s).fold(0.0, f64::max);
        let slowest = rows.iter().filter_map(|row| Some(row.times?.p90));
        Self {
            plan,
            store,
            interrupt,
            before: Duration::try_from_secs_f64(before).unwrap_or_default(),
            began: Instant::now(),
            least_patience: Duration::from_secs(hang_seconds.unwrap_or(HANG_SECONDS).into()),
            longest_step_ms: slowest.fold(0.0, f64::max),
            rows,
            ranks: None,
        }
    }

    /// Makes the measurements that `next` returns for the rows so far, until it returns `None`.
    /// `left` returns the number of remaining measurements, for the time limit of each and for the
    /// display.
    ///
    /// # Errors
    /// A measurement cannot be stored, or the ranks do not start. Earlier measurements are stored.
    pub(super) fn run(
        &mut self,
        next: impl Fn(&[Row]) -> Option<Task>,
        left: impl Fn(&[Row]) -> usize,
    ) -> Result<Halt, Error> {
        let mut display = Display::new(&self.plan.design.np, self.rows.len());
        let halt = loop {
            if let Some(signal) = self.interrupt.signal() {
                break Halt::Signal(signal);
            }
            let within = self.within();
            if within.is_some_and(|within| within.is_zero()) {
                break Halt::Budget;
            }
            let Some(task) = next(&self.rows) else {
                break Halt::Done;
            };
            let left = left(&self.rows).max(1);
            display.measuring(&task, &self.rows, left, within);
            let time = within.map(|within| within / u32::try_from(left).unwrap_or(u32::MAX));
            match self.measure(&task, time, &display)? {
                Ok(times) => self.keep(&task, &times)?,
                Err(Failure::Job(reason)) => {
                    self.ranks = None;
                    self.write(&task, Status::Failed(reason), &[])?;
                }
                Err(Failure::Abandoned) => {} // the head of the loop finds the reason
            }
        };
        if let (Some(ranks), Halt::Done | Halt::Budget) = (self.ranks.take(), halt) {
            ranks.leave();
        }
        Ok(halt)
    }

    /// Duration of the sweep, without the time between its processes.
    fn elapsed(&self) -> Duration {
        self.before + self.began.elapsed()
    }

    /// Rest of the budget.
    fn within(&self) -> Option<Duration> {
        let budget = Duration::try_from_secs_f64(self.plan.design.budget_s?).ok()?;
        Some(budget.saturating_sub(self.elapsed()))
    }

    /// Requests the measurement of `task`; starts the ranks if necessary.
    fn measure(
        &mut self,
        task: &Task,
        time: Option<Duration>,
        display: &Display,
    ) -> Result<Result<SeriesTimes, Failure>, Error> {
        let interrupt = self.interrupt;
        let mut go_on = || {
            display.tick();
            interrupt.signal().is_none()
        };
        let order = self.order(task, time);
        let patience = self.patience();
        let mut ranks = match self.ranks.take() {
            Some(ranks) if ranks.np() == task.point.np => ranks,
            others => {
                if let Some(others) = others {
                    others.leave();
                }
                match self.start(task.point.np, &mut go_on)? {
                    Some(ranks) => ranks,
                    None => return Ok(Err(Failure::Abandoned)),
                }
            }
        };
        let outcome = ranks.measure(&order, patience, &mut go_on);
        if outcome.is_ok() {
            self.ranks = Some(ranks);
        }
        Ok(outcome)
    }

    /// Starts ranks; returns `None` if the sweep is interrupted.
    fn start(&self, np: u32, go_on: &mut dyn FnMut() -> bool) -> Result<Option<Ranks>, Error> {
        let mut reason = String::new();
        for _ in 0..STARTS_MOST {
            match Ranks::start(self.plan, np, self.least_patience, go_on)? {
                Ok(ranks) => return Ok(Some(ranks)),
                Err(Failure::Abandoned) => return Ok(None),
                Err(Failure::Job(why)) => reason = why,
            }
        }
        Err(Error::NoStart { np, reason })
    }

    fn order(&self, task: &Task, time: Option<Duration>) -> MeasurementRequest {
        let design = &self.plan.design;
        let may_end_early = task.phase == Phase::Grid && !task.point.is_default();
        let of_grid = self.rows.iter().filter(|row| row.phase == Phase::Grid);
        let bound = || SoFar::new(of_grid, task.point.np).stop_above_ms();
        MeasurementRequest {
            point: task.point,
            series: Series {
                warmup_steps: design.warmup as usize,
                steps: design.steps as usize,
                at_least_ms: design.at_least_ms,
                stop_above_ms: may_end_early.then(bound).flatten(),
            },
            time,
        }
    }

    /// Time to wait for a step: a multiple of the longest step so far, with a lower limit.
    fn patience(&self) -> Duration {
        let seconds = HANG_FACTOR * self.longest_step_ms / 1e3;
        let by_steps = Duration::from_secs_f64(seconds.clamp(0.0, PATIENCE_SECONDS_MOST));
        by_steps.max(self.least_patience)
    }

    fn keep(&mut self, task: &Task, times: &SeriesTimes) -> Result<(), Error> {
        let steps = times.step_ms.iter().copied();
        self.longest_step_ms = steps.fold(self.longest_step_ms, f64::max);
        let status = match times.end {
            _ if times.step_ms.is_empty() => Status::Failed("no step was timed".to_owned()),
            SeriesEnd::Above => Status::Cut,
            SeriesEnd::Complete | SeriesEnd::Time => Status::Done,
        };
        self.write(task, status, &times.step_ms)
    }

    fn write(&mut self, task: &Task, status: Status, step_ms: &[f64]) -> Result<(), Error> {
        let row = Row {
            point: task.point,
            phase: task.phase,
            block: task.block,
            status,
            steps: step_ms.len() as u32, // at most the requested number
            times: StepSummary::new(step_ms),
            at_s: self.elapsed().as_secs_f64(),
        };
        self.store.append(&row)?;
        self.rows.push(row);
        Ok(())
    }
}
