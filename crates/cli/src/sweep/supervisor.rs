//! The loop of a sweep: what is next, have it measured, write it down.
//!
//! A measurement that fails is written down as failed, and the ranks are started anew. Whatever happens, what stands in the
//! file is not lost: a measurement is written before the next one starts.

use std::time::{Duration, Instant};

use super::channel::MeasurementRequest;
use super::error::Error;
use super::interrupt::Interrupt;
use super::plan::Plan;
use super::progress::Display;
use super::ranks::{Failure, Ranks};
use ronde_lab::bench::{Series, SeriesEnd, SeriesTimes};
use ronde_lab::sweep::order::Task;
use ronde_lab::sweep::store::Store;
use ronde_lab::sweep::{Phase, Row, Status, StepTimes, stop_above_ms};

/// Without a step for so long a job hangs, in seconds, however short its steps were so far.
const HANG_SECONDS: u32 = 30;

/// A step that takes so many times as long as the longest so far is no slow step any more.
const HANG_FACTOR: f64 = 20.0;

/// No job is waited for longer than this without a step, in seconds, whatever the file says of steps.
const PATIENCE_SECONDS_MOST: f64 = 3600.0;

/// Attempts to start the ranks in a row.
const STARTS_MOST: usize = 2;

/// Why a sweep measures no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Halt {
    /// Nothing is left, or nothing more that fits into the budget.
    Done,
    /// The budget is spent.
    Budget,
    /// A signal came: this one.
    Signal(u8),
}

/// See the module.
pub(super) struct Supervisor<'a> {
    plan: &'a Plan,
    store: &'a mut Store,
    interrupt: &'a Interrupt,
    /// All measurements, those of before included.
    pub(super) rows: Vec<Row>,
    /// Time that the sweep took before this process began.
    before: Duration,
    began: Instant,
    least_patience: Duration,
    longest_step_ms: f64,
    ranks: Option<Ranks>,
}

impl<'a> Supervisor<'a> {
    /// Goes on after `rows`; `hang_seconds` is the least time without a step after which a job hangs.
    pub(super) fn new(
        plan: &'a Plan,
        store: &'a mut Store,
        interrupt: &'a Interrupt,
        rows: Vec<Row>,
        hang_seconds: Option<u32>,
    ) -> Self {
        let before = rows.iter().map(|row| row.at_s).fold(0.0, f64::max);
        let slowest = rows.iter().filter_map(|row| row.times).map(|times| times.p90);
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

    /// Measures what `next` says after the rows so far, until it says none; `left` says how many are left, for the time that
    /// each may take and for the eye.
    ///
    /// # Errors
    /// A measurement cannot be written, ranks do not start. What was measured before is safe.
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
                    self.write(&task, Status::Failed(reason), None)?;
                }
                Err(Failure::Abandoned) => {} // the loop's head says why
            }
        };
        if let (Some(ranks), Halt::Done | Halt::Budget) = (self.ranks.take(), halt) {
            ranks.leave();
        }
        Ok(halt)
    }

    /// Time since the sweep began, without that between its processes.
    fn elapsed(&self) -> Duration {
        self.before + self.began.elapsed()
    }

    /// What is left of the budget.
    fn within(&self) -> Option<Duration> {
        let budget = Duration::try_from_secs_f64(self.plan.design.budget_s?).ok()?;
        Some(budget.saturating_sub(self.elapsed()))
    }

    /// Has `task` measured on ranks that are started if they have to be.
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

    /// Starts ranks; none when nobody wants to wait for them.
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
        MeasurementRequest {
            point: task.point,
            series: Series {
                warmup_steps: design.warmup as usize,
                steps: design.steps as usize,
                at_least_ms: design.at_least_ms,
                stop_above_ms: may_end_early
                    .then(|| stop_above_ms(of_grid, task.point.np))
                    .flatten(),
            },
            time,
        }
    }

    /// How long to wait for a step: by the longest so far, and never less than a stated time.
    fn patience(&self) -> Duration {
        let seconds = HANG_FACTOR * self.longest_step_ms / 1e3;
        let by_steps = Duration::from_secs_f64(seconds.clamp(0.0, PATIENCE_SECONDS_MOST));
        by_steps.max(self.least_patience)
    }

    fn keep(&mut self, task: &Task, times: &SeriesTimes) -> Result<(), Error> {
        let Some(summary) = StepTimes::of(&times.step_ms, times.step_ms.len()) else {
            return self.write(task, Status::Failed("no step was timed".to_owned()), None);
        };
        self.longest_step_ms = times.step_ms.iter().copied().fold(self.longest_step_ms, f64::max);
        let status = match times.end {
            SeriesEnd::Above => Status::Cut,
            SeriesEnd::Complete | SeriesEnd::Time => Status::Done,
        };
        self.write(task, status, Some(summary))
    }

    fn write(&mut self, task: &Task, status: Status, times: Option<StepTimes>) -> Result<(), Error> {
        let row = Row {
            point: task.point,
            phase: task.phase,
            block: task.block,
            status,
            times,
            at_s: self.elapsed().as_secs_f64(),
        };
        self.store.append(&row)?;
        self.rows.push(row);
        Ok(())
    }
}
