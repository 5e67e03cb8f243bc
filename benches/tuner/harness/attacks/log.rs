//! The log of one run, in the format of the runtime's autotune log, for `ronde review`.

use std::path::Path;

use ronde_tuner::{Action, Log, Point};

use super::{Job, Process};

/// Columns of the runtime's log that a step-time process has values for, and Horovod's four
/// booleans.
const COLUMNS: [&str; 13] = [
    "hierarchical_allreduce",
    "hierarchical_allgather",
    "torus_allreduce",
    "cache_enabled",
    "cycle_time_ms",
    "tensor_fusion_threshold",
    "score",
    "phase",
    "sample",
    "steps",
    "step_ms_p50",
    "step_ms_ci95",
    "predicted_step_ms",
];
/// Bytes of a step, for the column `score`.
const STEP_BYTES: f64 = 1e8;

/// A row that is a measurement, or the end of a search.
struct Row<'a> {
    phase: &'a str,
    setting: &'a Point,
    step_ms: f64,
    sample: Option<u32>,
    steps: Option<u64>,
    /// Median step time, half width of its interval, and prediction, ms.
    median_ms: f64,
    ci95_ms: Option<f64>,
    predicted_ms: Option<f64>,
}

impl Row<'_> {
    fn fields(&self) -> [String; 13] {
        let number = |value: f64| format!("{value:.5}");
        let optional = |value: Option<f64>| value.map_or_else(String::new, number);
        let count = |value: Option<u64>| value.map_or_else(String::new, |value| value.to_string());
        let [off, on] = ["0".to_owned(), "1".to_owned()];
        [
            off.clone(),
            off.clone(),
            off,
            on,
            number(self.setting.value(1)),
            number(self.setting.value(0)),
            number(STEP_BYTES / (self.step_ms * 1e3)),
            self.phase.to_owned(),
            count(self.sample.map(u64::from)),
            count(self.steps),
            number(self.median_ms),
            optional(self.ci95_ms),
            optional(self.predicted_ms),
        ]
    }
}

impl Process {
    /// Simulates a run and writes its log. Equal seeds give equal logs.
    ///
    /// # Errors
    /// The tuner rejects the process's space, or the file cannot be written.
    pub(crate) fn log(&self, seed: u64, path: &Path) -> Result<(), Box<dyn std::error::Error>> {
        let mut job = Job::new(self, seed)?;
        let mut log = Log::create(path, &COLUMNS)?;
        for _ in 0..self.steps {
            let step = job.step();
            for measured in job.session.take_measurements() {
                let phase = measured.phase.to_string();
                let row = Row {
                    phase: &phase,
                    setting: &measured.setting,
                    step_ms: measured.step_ms,
                    sample: Some(measured.sample),
                    steps: Some(measured.steps as u64),
                    median_ms: measured.step_ms_p50,
                    ci95_ms: Some(measured.step_ms_ci95),
                    predicted_ms: measured.predicted_step_ms,
                };
                let so_far = job.session.best_so_far();
                let (setting, step_ms, ci95_ms) = so_far.map_or(
                    (measured.setting, measured.step_ms, measured.step_ms_ci95),
                    |best| (best.setting, best.step_ms, best.step_ms_ci95),
                );
                let best = Row {
                    phase: "best",
                    setting: &setting,
                    step_ms,
                    steps: None,
                    median_ms: step_ms,
                    ci95_ms: Some(ci95_ms),
                    predicted_ms: None,
                    ..row
                };
                log.append(&row.fields(), &best.fields())?;
            }
            if let Action::Finished(verdict) = step.action {
                let row = |phase| Row {
                    phase,
                    setting: &verdict.chosen,
                    step_ms: verdict.chosen_step_ms,
                    sample: None,
                    steps: Some(verdict.steps_active),
                    median_ms: verdict.chosen_step_ms,
                    ci95_ms: None,
                    predicted_ms: None,
                };
                let phase = if verdict.reverted {
                    "reverted"
                } else {
                    "final"
                };
                log.append(&row(phase).fields(), &row("best").fields())?;
            }
        }
        Ok(())
    }
}
