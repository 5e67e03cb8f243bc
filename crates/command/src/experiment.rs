//! The loop of a search: the next run of the plan, until none is left.

use std::time::Instant;

use crate::Setting;
use crate::plan::{Plan, Task};
use crate::run::{Outcome, Phase, Row, Runner};

/// Event of the loop, for its observer.
#[derive(Debug)]
pub enum Event<'a> {
    /// A run begins, after these.
    Begins(Phase, &'a Setting, &'a [Row]),
    /// A run has ended: the last of these.
    Ended(&'a [Row]),
}

/// Reason why the loop has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The plan has no further run.
    Done,
    /// The user interrupted a run, which does not count.
    Interrupted,
    /// The first run of the start failed for this reason, so there is nothing to compare with.
    StartFailed(String),
}

/// Runs the plan from where `rows` are, and adds to them.
///
/// # Errors
/// The runner's error, or that of `watch`.
pub fn search<R: Runner>(
    plan: &Plan,
    runner: &mut R,
    rows: &mut Vec<Row>,
    mut watch: impl FnMut(Event) -> Result<(), R::Error>,
) -> Result<End, R::Error> {
    loop {
        let Task::Run {
            phase,
            setting,
            limit,
        } = plan.next(rows)
        else {
            return Ok(End::Done);
        };
        watch(Event::Begins(phase, &setting, rows))?;
        let began = Instant::now();
        let Some(outcome) = runner.run(&setting, &limit)? else {
            return Ok(End::Interrupted);
        };
        let seconds = began.elapsed().as_secs_f64();
        rows.push(Row {
            phase,
            setting,
            outcome,
            seconds,
        });
        watch(Event::Ended(rows))?;
        if let [
            Row {
                outcome: Outcome::Failed { reason },
                ..
            },
        ] = &rows[..]
        {
            return Ok(End::StartFailed(reason.clone()));
        }
    }
}
