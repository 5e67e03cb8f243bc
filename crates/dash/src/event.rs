//! Events of a job, as its owner publishes them. Times are in milliseconds.
//!
//! Steps are counted from 0 and do not decrease. Numbers that are not known are `None`; the page
//! leaves them out.

use ronde_job::settings::Settings;
use serde::Serialize;

/// Event of a job.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A job begins. What was published before is forgotten.
    Job(Job),
    /// A step has ended.
    Step(Step),
    /// Settings have changed.
    Settings(SettingsChange),
    /// Waiting and transfer time of the latest ranks; replaces the previous ones.
    Ranks(Ranks),
    /// The model of the step time; replaces the previous one.
    Surface(Surface),
    /// Progress of the tuner; replaces the previous one.
    Tuner(Tuner),
    /// The tuner has decided.
    Verdict(Verdict),
    /// The tuner has compared the chosen settings with the default again.
    Recheck(Recheck),
    /// Line of the event log.
    Log(Log),
    /// The job has ended.
    End(End),
}

/// Description of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Job {
    /// Title: the command of the job, or the name of a log.
    pub name: String,
    /// Number of ranks, if known.
    pub ranks: Option<u64>,
    /// Number of hosts, if known.
    pub hosts: Option<u64>,
    /// Backend, such as `shared memory` or `tcp`; empty if unknown.
    pub backend: String,
    /// Version of the program that runs the job; empty if unknown.
    pub version: String,
    /// Contents of a step, such as `161 tensors, 97.5 MiB`; empty if unknown.
    pub model: String,
    /// Start, milliseconds since 1970-01-01 00:00 UTC, if known.
    pub started_unix_ms: Option<u64>,
    /// Quantity that the values of the steps measure.
    pub measure: Measure,
    /// Whether the events come from a log, so it is not known whether the job still runs.
    pub is_log: bool,
}

/// Quantity that steps measure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Step time; lower is better.
    #[default]
    StepMs,
    /// Score of Horovod's tuner, bytes per µs; higher is better.
    Score,
}

/// Purpose of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Window {
    /// It is not a measurement of the tuner.
    #[default]
    None,
    /// The default is measured, before the search.
    Default,
    /// A setting of the search is measured.
    Search,
    /// Visit of a comparison, at the default.
    AbDefault,
    /// Visit of a comparison, at the candidate.
    AbCandidate,
}

/// A step, or consecutive steps at the same settings of which only the average is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Number of the first step.
    pub step: u64,
    /// Number of steps; at least 1.
    pub steps: u64,
    /// Step time, ms, or its score ([`Job::measure`]).
    pub value: f64,
    /// Settings in force.
    pub settings: Settings,
    /// Purpose.
    pub window: Window,
    /// Time in which the caller waited for communication, ms.
    pub exposed_ms: Option<f64>,
    /// Time of negotiation, ms.
    pub negotiation_ms: Option<f64>,
    /// Number of batches.
    pub messages: Option<f64>,
    /// Bytes of all batches.
    pub bytes: Option<f64>,
    /// Bytes of a batch as a share of the fusion threshold, average of the step's batches, 0 to 1.
    pub fill: Option<f64>,
}

/// Change of settings.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SettingsChange {
    /// First step under the new settings.
    pub step: u64,
    /// The new settings.
    pub settings: Settings,
    /// Reason in a few words, such as `tuner: sample 3`.
    pub why: String,
}

/// Waiting and transfer time of ranks.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Ranks {
    /// Step after which this was known.
    pub step: u64,
    /// The latest ranks, the latest first; at most [eight](Ranks::MOST) are kept.
    pub rows: Vec<RankTimes>,
}

impl Ranks {
    /// Most ranks that are shown.
    pub const MOST: usize = 8;
}

/// Times of one rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct RankTimes {
    /// The rank.
    pub rank: u64,
    /// Its delay: time that the others waited for it, ms per step.
    pub late_ms: Option<f64>,
    /// Time that its tensors waited for other ranks, ms per step.
    pub wait_ms: Option<f64>,
    /// Time of its transfers, ms per step.
    pub transfer_ms: Option<f64>,
}

/// Combination of fusion threshold and cycle time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Place {
    /// Fusion threshold, MiB; 0 = no fusion.
    pub fusion_mb: f64,
    /// Cycle time, ms.
    pub cycle_ms: f64,
}

/// Measurement of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// The setting.
    #[serde(flatten)]
    pub place: Place,
    /// Step time, ms, or its score; mean of its measurements.
    pub value: f64,
    /// Half the width of its 95 % interval, if known.
    pub ci95: Option<f64>,
    /// Number of measurements.
    pub measurements: u64,
}

/// Model of the step time over fusion threshold and cycle time, with the switches of the incumbent.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Surface {
    /// Levels of the fusion threshold, MiB, ascending.
    pub fusion_mb: Vec<f64>,
    /// Levels of the cycle time, ms, ascending.
    pub cycle_ms: Vec<f64>,
    /// Predicted step time, ms, or score: for each cycle time, one value for each threshold. Empty
    /// without a model.
    pub predicted: Vec<f64>,
    /// The default.
    pub default: Option<Place>,
    /// The best setting so far, or the chosen one.
    pub incumbent: Option<Place>,
    /// The settings that were measured.
    pub tried: Vec<Measured>,
    /// The setting that is measured now or next.
    pub next: Option<Place>,
}

/// Progress of the tuner.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Tuner {
    /// Phase in a few words, such as `comparison with the default`.
    pub phase: String,
    /// Further details, such as `sample 3 at 64 MiB, 5 ms`; may be empty.
    pub detail: String,
    /// Steps until the verdict, roughly.
    pub steps_left: Option<u64>,
    /// Cost of the search so far, in steps at the default settings.
    pub steps_lost: Option<f64>,
    /// Whether the search has ended.
    pub is_over: bool,
}

/// Verdict of the tuner.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// Step at which it was reached.
    pub step: u64,
    /// Whether the default stays.
    pub kept_default: bool,
    /// Whether earlier chosen settings were reverted to the default.
    pub reverted: bool,
    /// The chosen settings.
    pub settings: Settings,
    /// Step time at the default, ms, or score.
    pub default_value: Option<f64>,
    /// Step time at the chosen settings, ms, or score.
    pub chosen_value: Option<f64>,
    /// Gain in percent of the default's step time: 95 % interval.
    pub gain_pct: Option<[f64; 2]>,
    /// Steps from the first measured one to the verdict.
    pub steps_active: Option<u64>,
    /// Cost of the search, in steps at the default settings.
    pub steps_lost: Option<f64>,
    /// Budget of the search, in the same unit.
    pub budget_steps: Option<f64>,
    /// Step at which the gain has compensated the cost.
    pub payback_step: Option<u64>,
    /// The verdict as the job prints it.
    pub text: String,
}

/// Comparison of the chosen settings with the default after the verdict.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recheck {
    /// Step at which it ended.
    pub step: u64,
    /// Step time at the default, ms.
    pub default_ms: Option<f64>,
    /// Step time at the chosen settings, ms.
    pub chosen_ms: Option<f64>,
    /// Gain in percent of the default's step time: 95 % interval.
    pub gain_pct: Option<[f64; 2]>,
    /// Whether the chosen settings stay.
    pub is_confirmed: bool,
    /// The result in one sentence.
    pub text: String,
}

/// Kind of an entry of the event log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LogKind {
    /// The step time has changed permanently.
    Drift,
    /// Tensors wait for ranks that have not submitted them.
    Stall,
    /// A rank was lost.
    LostRank,
    /// A timeline was started or stopped.
    Timeline,
    /// A command was given on the page.
    Control,
    /// Another event of the tuner.
    Tuner,
    /// Any other event.
    Info,
    /// A warning.
    Warning,
}

/// Entry of the event log.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Log {
    /// Step, if known.
    pub step: Option<u64>,
    /// Kind.
    pub kind: LogKind,
    /// Text in one or two sentences.
    pub text: String,
    /// Time, milliseconds since 1970-01-01 00:00 UTC. `None`: when it was published, or unknown if
    /// the events come from a log.
    pub at_unix_ms: Option<u64>,
}

/// End of a job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct End {
    /// Whether it ended because of an error.
    pub failed: bool,
    /// The end in one sentence.
    pub text: String,
}
