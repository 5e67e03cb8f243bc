//! Progress display of a benchmark: a bar on rank 0, if standard error is a terminal, that also
//! shows the tuner's progress.

use indicatif::ProgressBar;

use crate::present::bar;

use ronde::AutotuneReport;
use ronde::context::Context;
use ronde_lab::bench::{Observer, Progress};

const TEMPLATE: &str = "{prefix:>7} {bar:24} {pos}/{len} {msg}";

/// Shows the progress of the benchmark and asks the context for the tuner's verdict.
pub(super) struct Display<'a> {
    context: &'a Context,
    bar: Option<ProgressBar>,
    /// The tuner's report at its verdict. It is kept because the tuner continues to watch the job
    /// and may start again before the end.
    verdict: Option<AutotuneReport>,
}

impl<'a> Display<'a> {
    /// Creates a display for the rank of `context`; it shows nothing on ranks other than 0 and if
    /// standard error is not a terminal.
    pub(super) fn new(context: &'a Context) -> Self {
        let bar = (context.rank() == 0).then(|| bar(TEMPLATE, None)).flatten();
        Self {
            context,
            bar,
            verdict: None,
        }
    }

    /// The tuner's report: the one with its verdict if there is one, else the current one.
    pub(super) fn autotune(&self) -> Option<AutotuneReport> {
        self.verdict
            .clone()
            .or_else(|| self.context.autotune_report())
    }
}

impl Observer for Display<'_> {
    fn progress(&mut self, progress: Progress) {
        let Some(bar) = &self.bar else { return };
        match progress {
            Progress::Warmup { done, total } => show(bar, "warm-up", done, total),
            Progress::Timed { done, total } => {
                bar.set_message("");
                show(bar, "timed", done, total);
            }
            Progress::Tuning { done, limit } => {
                let report = self.context.autotune_report();
                let expected = report
                    .as_ref()
                    .map_or(limit, |report| done + report.steps_left as usize);
                bar.set_message(report.as_ref().map(tuning_line).unwrap_or_default());
                show(bar, "tuning", done, expected.min(limit));
            }
        }
    }

    fn verdict_reached(&mut self) -> bool {
        let report = self.context.autotune_report();
        self.verdict = report.filter(|report| report.verdict.is_some());
        self.verdict.is_some()
    }
}

fn show(bar: &ProgressBar, prefix: &'static str, done: usize, total: usize) {
    bar.set_prefix(prefix);
    bar.set_length(total as u64);
    bar.set_position(done as u64);
}

/// State of the tuner in one line: phase, current settings with their step time, and the best
/// settings so far.
fn tuning_line(report: &AutotuneReport) -> String {
    let mut line = format!("{} {}: {}", report.phase, report.sample, report.settings);
    if let Some(step_ms) = report.step_ms {
        line += &format!(" {step_ms:.2} ms");
    }
    if let Some((settings, step_ms)) = &report.best {
        line += &format!(" · best {settings} {step_ms:.2} ms");
    }
    line
}
