//! Trials of a search: the rows of a log that contain a measurement, on a common scale.

use ronde_tuner::{LogContents, LogRow};
use serde::Serialize;

use super::setting::{Setting, Switch};
use ronde_job::units::{counted, short};

/// Larger thresholds and cycle times are treated as typing errors, MiB and ms.
const KNOB_MOST: f64 = 1e6;
/// Half the width of a 95 % interval, in standard errors.
pub(super) const INTERVAL_95: f64 = 1.96;

/// Program that wrote a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Writer {
    /// Horovod, or another program that writes its columns.
    #[default]
    Horovod,
    /// Ronde.
    Ronde,
}

/// Quantity that a log measures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Step time in ms; lower is better.
    StepMs,
    /// Score: bytes reduced per µs; higher is better.
    #[default]
    Score,
}

impl Measure {
    /// Returns the value with this logarithm; lower logarithms are better.
    pub fn value(self, log: f64) -> f64 {
        match self {
            Self::StepMs => log.exp(),
            Self::Score => (-log).exp(),
        }
    }

    /// Returns the logarithm of the step time, up to a constant; lower is better.
    pub fn log(self, value: f64) -> f64 {
        match self {
            Self::StepMs => value.ln(),
            Self::Score => -value.ln(),
        }
    }

    /// Formats a value with its unit.
    pub fn words(self, value: f64) -> String {
        match self {
            Self::StepMs => format!("{} ms", short(value)),
            Self::Score => short(value),
        }
    }
}

/// Purpose of a measured row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// The settings with which the search began.
    Default,
    /// A setting that the search tried.
    Sample,
    /// A window of a contest: the comparison of a winner with the default.
    Ab,
}

/// A row with a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Trial {
    /// Line in the file, from 1.
    pub line: u64,
    /// Its purpose.
    pub phase: Phase,
    /// Index of the sample or of the A/B round; Horovod's rows are counted from 1.
    pub number: u64,
    /// The setting.
    pub setting: Setting,
    /// Measured value, in the unit of the review's measure.
    pub value: f64,
    /// Half the width of its 95 % interval, if the log contains it.
    pub ci95: Option<f64>,
    /// Bytes per µs, if the log contains them.
    pub score: Option<f64>,
    /// Number of steps measured, if the log contains it.
    pub steps: Option<u64>,
    /// Step time that was predicted before the trial, ms, if the log contains it.
    pub predicted_step_ms: Option<f64>,
    /// ln(step time) up to a constant; lower is better.
    #[serde(skip)]
    pub log: f64,
}

impl Trial {
    /// Standard error as a share of the value, if the log states it.
    pub(super) fn stated_sd(&self) -> Option<f64> {
        Some(self.ci95? / INTERVAL_95 / self.value)
    }

    /// Variance of `log` as stated by the log, otherwise 0.
    pub(super) fn variance(&self) -> f64 {
        self.stated_sd().unwrap_or(0.0).powi(2)
    }
}

/// One search: consecutive rows of a log.
#[derive(Clone, Debug, Default)]
pub(super) struct Search {
    pub(super) writer: Writer,
    pub(super) measure: Measure,
    /// The switches that the log has columns for.
    pub(super) switches: Vec<Switch>,
    pub(super) trials: Vec<Trial>,
    /// The verdict: Ronde's `final` row, or Horovod's repeated best row.
    pub(super) end: Option<LogRow>,
    /// Ronde's best so far.
    pub(super) best: Option<LogRow>,
    /// Whether another search follows in the log.
    pub(super) is_followed: bool,
    /// Whether the chosen settings were reverted to the default after the verdict.
    pub(super) reverted: bool,
    /// Whether the tensors are on GPUs.
    pub(super) on_gpu: bool,
    left_out: u64,
    /// Rows that were left out, and the reasons.
    pub(super) warnings: Vec<String>,
}

impl Search {
    /// Returns the combinations of switches that were tried, in order.
    pub(super) fn combinations(&self) -> Vec<[Option<bool>; 4]> {
        let mut combinations = Vec::new();
        for trial in &self.trials {
            if !combinations.contains(&trial.setting.switches) {
                combinations.push(trial.setting.switches);
            }
        }
        combinations
    }

    /// Returns the switches that were tried both on and off.
    pub(super) fn varied(&self) -> Vec<Switch> {
        let tried = self.combinations();
        let is = |switch: Switch, on: bool| tried.iter().any(|of| of[switch as usize] == Some(on));
        let both = |switch: &Switch| is(*switch, true) && is(*switch, false);
        Switch::ALL.into_iter().filter(both).collect()
    }
}

/// Splits a log into its searches, at least one. Ronde begins another when the job has changed.
pub(super) fn searches(log: &LogContents) -> Vec<Search> {
    let (measure, unit) = match log.rows.iter().any(|row| row.step_ms_p50.is_some()) {
        true => (Measure::StepMs, "step time"),
        false => (Measure::Score, "score"),
    };
    let has = |switch: &Switch| log.columns.iter().any(|column| column == switch.column());
    let writer = match log.is_ronde {
        true => Writer::Ronde,
        false => Writer::Horovod,
    };
    let new = || Search {
        writer,
        measure,
        switches: Switch::ALL.into_iter().filter(has).collect(),
        ..Search::default()
    };
    let mut finished = Vec::new();
    let mut search = new();
    for (index, row) in log.rows.iter().enumerate() {
        let (is_end, phase) = match row.phase.as_deref() {
            Some("reset") => continue, // of an elastic job's ranks
            Some("default") => (false, Phase::Default),
            Some("ab") => (false, Phase::Ab),
            Some("final" | "reverted") => (true, Phase::Sample),
            _ => (!log.is_ronde && Some(index) == log.best, Phase::Sample),
        };
        let begun = search.end.is_some() || !search.trials.is_empty();
        if log.is_ronde && phase == Phase::Default && begun {
            search.is_followed = true;
            finished.push(std::mem::replace(&mut search, new()));
        }
        search.on_gpu |= row.on_gpu == Some(true);
        if is_end {
            search.end = Some(row.clone());
            search.reverted = row.phase.as_deref() == Some("reverted");
        } else if row.phase.as_deref() == Some("best") {
            search.best = Some(row.clone());
        } else if let Some(trial) = trial(row, phase, measure, search.trials.len() as u64 + 1) {
            search.trials.push(trial);
        } else {
            search.left_out += 1;
        }
    }
    finished.push(search);
    for search in finished.iter_mut().filter(|search| search.left_out > 0) {
        let rows = counted(search.left_out, "row");
        let warning = format!("{rows} without a setting or a {unit} above 0 left out");
        search.warnings.push(warning);
    }
    let mut of_log: Vec<String> = log.warnings.iter().map(ToString::to_string).collect();
    if log.warnings_more > 0 {
        let more = counted(log.warnings_more, "more warning");
        of_log.push(format!("{more} like these"));
    }
    finished[0].warnings.splice(0..0, of_log);
    finished
}

fn trial(row: &LogRow, phase: Phase, measure: Measure, count: u64) -> Option<Trial> {
    let setting = Setting::of(row)?;
    let usable = |value: &f64| value.is_finite() && *value > 0.0;
    let (value, ci95) = match measure {
        Measure::StepMs => (row.step_ms_p50, row.step_ms_ci95),
        Measure::Score => (row.score, None),
    };
    let value = value.filter(usable)?;
    if setting.fusion_mb > KNOB_MOST || setting.cycle_ms > KNOB_MOST {
        return None;
    }
    Some(Trial {
        line: row.line,
        phase,
        number: row.sample.unwrap_or(count),
        setting,
        value,
        ci95,
        score: row.score.filter(usable),
        steps: row.steps,
        predicted_step_ms: row.predicted_step_ms.filter(usable),
        log: measure.log(value),
    })
}
