//! Progress of a search: on a terminal a bar, else a line for each run.

use std::io::{self, Write};
use std::time::Duration;

use indicatif::ProgressBar;
use ronde_command::{Outcome, Phase, Row, Setting};

use super::job::Job;
use crate::present::units::{duration, short};
use crate::present::{bar, harmless};

const TEMPLATE: &str = "{prefix} {bar:24} {pos}/{len} {elapsed} {wide_msg}";
/// Interval at which the bar's clock is redrawn.
const TICK: Duration = Duration::from_secs(1);

/// Progress display.
pub(super) struct Display<'a> {
    job: &'a Job,
    bar: Option<ProgressBar>,
}

impl<'a> Display<'a> {
    /// Display of a search that has `known` runs already. Where the command's output is shown, a
    /// bar would be torn by it.
    pub(super) fn new(job: &'a Job, known: usize, shows_output: bool) -> Self {
        let runs = Some(job.plan.runs() as u64);
        let bar = (!shows_output).then(|| bar(TEMPLATE, runs)).flatten();
        if let Some(bar) = &bar {
            bar.set_position(known as u64);
            bar.enable_steady_tick(TICK);
        }
        Self { job, bar }
    }

    /// Shows that a run begins.
    pub(super) fn begins(&self, phase: Phase, setting: &Setting, rows: &[Row]) {
        let Some(bar) = &self.bar else { return };
        let mut parts = Vec::new();
        let best = rows
            .iter()
            .filter_map(|row| Some((row.outcome.value()?, &row.setting)));
        if let Some((cost, best)) = best.min_by(|a, b| a.0.total_cmp(&b.0)) {
            let figure = short(self.job.figure(cost));
            parts.push(format!(
                "best so far {figure} with {}",
                self.job.words(best)
            ));
        }
        parts.push(format!("now {}", self.job.words(setting)));
        bar.set_prefix(phase_name(phase));
        bar.set_message(harmless(&parts.join(" · ")));
    }

    /// Shows the latest run.
    pub(super) fn ended(&self, rows: &[Row]) {
        if let Some(bar) = &self.bar {
            bar.set_position(rows.len() as u64);
            return;
        }
        let Some(row) = rows.last() else { return };
        let line = format!(
            "ronde: tune: run {} of at most {}, {}: {}: {} ({})",
            rows.len(),
            self.job.plan.runs(),
            phase_name(row.phase),
            self.job.words(&row.setting),
            outcome(self.job, &row.outcome),
            duration(row.seconds),
        );
        // An error is ignored: a closed standard error is no reason to stop.
        let _ = writeln!(io::stderr(), "{}", harmless(&line));
    }
}

/// Name of a phase.
pub(super) fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Search => "searching",
        Phase::Compare => "comparing",
    }
}

/// Result of a run in words.
pub(super) fn outcome(job: &Job, outcome: &Outcome) -> String {
    match outcome {
        Outcome::Measured { value, .. } => {
            format!("{} {}", job.metric.name(), short(job.figure(*value)))
        }
        Outcome::Stopped { value } => {
            let figure = short(job.figure(*value));
            let than = if job.maximize { "at most" } else { "at least" };
            format!("stopped early, {than} about {figure}")
        }
        Outcome::Failed { reason } => format!("failed: {reason}"),
    }
}
