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
//! - There is one finding for each number of ranks. Unknown values are null: `drift_pct` of a
//!   single block, `recommended` if `withheld` has the reason why nothing is recommended.
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
//!   is the shortest step time with that value; `tied` is true if a point with that value ties
//!   with the best.

use ronde_job::gate::Withheld;
use serde::Serialize;
use serde_json::{Map, Value};

use super::report::About;
use super::words;
use ronde_lab::sweep::{
    Basis, Finding, LEVEL, LEVEL_PREDICTED, Outcome, Point, Tally, Verdict, settings_to_json,
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
    #[serde(flatten)]
    finding: &'a Finding,
    level: f64,
    best: Option<Timed>,
    default: Option<Timed>,
    ties: Vec<Timed>,
    recommended: Option<Recommended>,
    /// Reason why no setting is recommended; null if one is.
    withheld: Option<Withheld>,
}

#[derive(Debug, Serialize)]
struct Timed {
    #[serde(flatten, serialize_with = "settings_to_json")]
    point: Point,
    step_ms: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Recommended {
    #[serde(flatten)]
    timed: Timed,
    environment: String,
    flags: Option<String>,
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
            finding,
            level: match finding.basis {
                Basis::Predicted => LEVEL_PREDICTED,
                _ => LEVEL,
            },
            best: finding.best().map(Timed::new),
            default: finding.default().map(Timed::new),
            ties: finding.ties().map(Timed::new).collect(),
            recommended: finding.recommended().map(|outcome| Recommended {
                timed: Timed::new(outcome),
                environment: words::environment(&outcome.point),
                flags: words::flags(&outcome.point),
            }),
            withheld: finding.withheld(),
        }
    }
}

impl Timed {
    fn new(outcome: &Outcome) -> Self {
        let predicted = outcome.predicted_ms.map(|predicted| predicted.value);
        Self {
            point: outcome.point,
            step_ms: outcome.step_ms.or(predicted),
        }
    }
}
