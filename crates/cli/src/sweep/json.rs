//! `summary.json`: the verdict in JSON.
//!
//! ```json
//! {"ronde_sweep": 1, "job": "resnet50, …", "command": "ronde sweep …", "machine": {"cpu": "…"},
//!  "unfinished": null, "warnings": [],
//!  "took_s": 372.4, "measurements": {"done": 84, "cut": 8, "failed": 1},
//!  "findings": [{
//!    "np": 2, "basis": "confirmed", "conclusion": "faster", "level": 0.95,
//!    "best": {"fusion_threshold_bytes": 16777216, "cycle_time_ms": 2.5, "cache": true,
//!             "hierarchical_allreduce": false, "step_ms": 52.3},
//!    "default": {"…": "likewise"},
//!    "gain_pct": {"value": 11.2, "interval": [10.4, 12.0]},
//!    "ties": [{"…": "likewise"}],
//!    "recommended": {"…": "likewise",
//!                    "environment": "HOROVOD_FUSION_THRESHOLD=16777216 HOROVOD_CYCLE_TIME=2.5",
//!                    "flags": "--fusion-threshold-mb 16 --cycle-time-ms 2.5"},
//!    "noise": {"sd_pct": 0.8, "degrees_of_freedom": 61, "drift_pct": 2.1,
//!              "default_over_time": [[3.1, 58.7]],
//!              "strays": [{"fusion_threshold_bytes": 0, "…": "…", "at_s": 63.0, "step_ms": 91.2,
//!                          "expected_ms": 58.0}]},
//!    "knobs": [{"knob": "fusion_threshold", "share": 0.71,
//!               "levels": [{"value": 0.0, "effect": 1.4, "best_ms": 140.2, "tied": false}]}],
//!    "interaction": 0.04,
//!    "points": [{"fusion_threshold_bytes": 16777216, "cycle_time_ms": 2.5, "cache": true,
//!                "hierarchical_allreduce": false, "ending": "measured", "reason": null,
//!                "measurements": 9, "failures": 0, "step_ms": 52.3, "predicted_ms": null,
//!                "above_best_pct": 0.0,
//!                "against_default_pct": {"value": -11.2, "interval": [-12.3, -10.1]},
//!                "tied": true}]
//!  }]}
//! ```
//!
//! - There is one finding for each number of ranks. Unknown values are null.
//! - `basis` is `grid`, `confirmed` (the gain is from measurements made after the grid),
//!   `predicted` or `verified`.
//! - `conclusion` is `faster`, `default-as-good`, `unproven`, `no-default` or `nothing`.
//! - `gain_pct` is the share of the default's step time that the best setting saves. It is below 0
//!   if the best of the grid took longer than the default when both were measured again; the
//!   conclusion is `default-as-good` then.
//! - `recommended` is the default if no setting is significantly faster, or only by less than 1 %.
//! - `against_default_pct` and `above_best_pct` are changes of the step time. The intervals of
//!   `against_default_pct` are simultaneous for all points.
//! - `ending` is `measured`, `predicted`, `cut` (ended early because clearly worse; `step_ms` is
//!   the value until then) or `failed` (with a `reason`). Points are ordered from the best to the
//!   worst.
//! - Levels of knobs are in MiB and ms, on = 1. Their `effect` is relative to the mean; `best_ms`
//!   is the shortest step time with that value; `tied` tells whether a point with that value ties
//!   with the best.

use ronde_job::gate::Withheld;
use serde::Serialize;
use serde_json::{Map, Value};

use super::report::About;
use super::words;
use ronde_lab::sweep::{
    Basis, Conclusion, Ending, Estimate, Finding, KnobEffect, LEVEL, LEVEL_PREDICTED, Noise,
    Outcome, Point, Tally, Verdict,
};

/// Version of the format.
pub(super) const VERSION: u32 = 1;

/// Contents of `summary.json`.
#[derive(Debug, Serialize)]
pub(super) struct Document<'a> {
    ronde_sweep: u32,
    job: String,
    command: &'a str,
    machine: Map<String, Value>,
    unfinished: Option<&'a str>,
    warnings: &'a [String],
    took_s: f64,
    measurements: Tally,
    findings: Vec<Found<'a>>,
}

#[derive(Debug, Serialize)]
struct Found<'a> {
    np: u32,
    basis: Basis,
    conclusion: Conclusion,
    level: f64,
    best: Option<Timed>,
    default: Option<Timed>,
    gain_pct: Option<Estimate>,
    ties: Vec<Timed>,
    recommended: Option<Recommended>,
    /// Reason why no setting is recommended; null if one is.
    withheld: Option<Withheld>,
    noise: Option<Noisy>,
    knobs: &'a [KnobEffect],
    interaction: f64,
    points: Vec<Came<'a>>,
}

#[derive(Debug, Serialize)]
struct Setting {
    fusion_threshold_bytes: u64,
    cycle_time_ms: f64,
    cache: bool,
    hierarchical_allreduce: bool,
}

#[derive(Debug, Serialize)]
struct Timed {
    #[serde(flatten)]
    setting: Setting,
    step_ms: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Recommended {
    #[serde(flatten)]
    timed: Timed,
    environment: String,
    flags: Option<String>,
}

#[derive(Debug, Serialize)]
struct Noisy {
    sd_pct: f64,
    degrees_of_freedom: u32,
    drift_pct: f64,
    default_over_time: Vec<(f64, f64)>,
    strays: Vec<Strayed>,
}

#[derive(Debug, Serialize)]
struct Strayed {
    #[serde(flatten)]
    setting: Setting,
    at_s: f64,
    step_ms: f64,
    expected_ms: f64,
}

#[derive(Debug, Serialize)]
struct Came<'a> {
    #[serde(flatten)]
    setting: Setting,
    ending: &'static str,
    reason: Option<&'a str>,
    measurements: u32,
    failures: u32,
    step_ms: Option<f64>,
    predicted_ms: Option<Estimate>,
    above_best_pct: Option<f64>,
    against_default_pct: Option<Estimate>,
    tied: bool,
}

impl<'a> Document<'a> {
    pub(super) fn new(about: &'a About, verdict: &'a Verdict) -> Self {
        let fact = |(name, value): &(String, String)| (name.clone(), Value::from(value.clone()));
        Self {
            ronde_sweep: VERSION,
            job: about.whole(),
            command: &about.command,
            machine: about.machine.iter().map(fact).collect(),
            unfinished: about.unfinished.as_deref(),
            warnings: &about.warnings,
            took_s: verdict.took_s,
            measurements: verdict.measurements,
            findings: verdict.findings.iter().map(Found::new).collect(),
        }
    }
}

impl<'a> Found<'a> {
    fn new(finding: &'a Finding) -> Self {
        Self {
            np: finding.np,
            basis: finding.basis,
            conclusion: finding.conclusion,
            level: match finding.basis {
                Basis::Predicted => LEVEL_PREDICTED,
                _ => LEVEL,
            },
            best: finding.best().map(Timed::new),
            default: finding.default().map(Timed::new),
            gain_pct: finding.gain.map(percent),
            ties: finding.ties().map(Timed::new).collect(),
            recommended: finding.recommended().map(|outcome| Recommended {
                timed: Timed::new(outcome),
                environment: words::environment(&outcome.point),
                flags: words::flags(&outcome.point),
            }),
            withheld: finding.withheld(),
            noise: finding.noise.as_ref().map(Noisy::new),
            knobs: &finding.knobs,
            interaction: finding.interaction,
            points: finding.points.iter().map(Came::new).collect(),
        }
    }
}

impl Setting {
    fn new(point: &Point) -> Self {
        Self {
            fusion_threshold_bytes: point.fusion_threshold_bytes,
            cycle_time_ms: point.cycle_time_ms,
            cache: point.cache,
            hierarchical_allreduce: point.hierarchical_allreduce,
        }
    }
}

impl Timed {
    fn new(outcome: &Outcome) -> Self {
        let predicted = outcome.predicted_ms.map(|predicted| predicted.value);
        Self {
            setting: Setting::new(&outcome.point),
            step_ms: outcome.step_ms.or(predicted),
        }
    }
}

impl Noisy {
    fn new(noise: &Noise) -> Self {
        Self {
            sd_pct: noise.sd * 100.0,
            degrees_of_freedom: noise.freedom,
            drift_pct: noise.drift * 100.0,
            default_over_time: noise.default_over_time.clone(),
            strays: noise
                .strays
                .iter()
                .map(|stray| Strayed {
                    setting: Setting::new(&stray.point),
                    at_s: stray.at_s,
                    step_ms: stray.step_ms,
                    expected_ms: stray.expected_ms,
                })
                .collect(),
        }
    }
}

impl<'a> Came<'a> {
    fn new(outcome: &'a Outcome) -> Self {
        let (ending, reason) = match &outcome.ending {
            Ending::Measured => ("measured", None),
            Ending::Predicted => ("predicted", None),
            Ending::Cut => ("cut", None),
            Ending::Failed(why) => ("failed", Some(why.as_str())),
        };
        Self {
            setting: Setting::new(&outcome.point),
            ending,
            reason,
            measurements: outcome.measurements,
            failures: outcome.failures,
            step_ms: outcome.step_ms,
            predicted_ms: outcome.predicted_ms,
            above_best_pct: outcome.above_best.map(|above| above * 100.0),
            against_default_pct: outcome.against_default.map(percent),
            tied: outcome.tied,
        }
    }
}

fn percent(estimate: Estimate) -> Estimate {
    Estimate {
        value: estimate.value * 100.0,
        interval: estimate
            .interval
            .map(|bounds| bounds.map(|bound| bound * 100.0)),
    }
}
