//! `summary.json`: the verdict in JSON. `docs/SWEEP.md` describes its fields.

use ronde_job::gate::Withheld;
use serde::Serialize;
use serde_json::{Map, Value};

use super::report::About;
use super::words;
use ronde_lab::sweep::{Finding, Outcome, Point, Tally, Verdict};

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
    #[serde(flatten)]
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
            level: words::level(finding),
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
        Self {
            point: outcome.point,
            step_ms: outcome.time_ms(),
        }
    }
}
