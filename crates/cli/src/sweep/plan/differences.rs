//! Comparison of a plan with other arguments: with `--resume`, only the budget may change.

use serde_json::Value;

use super::Plan;
use super::given::{NP_DEFAULT, settings};
use crate::error::Error;
use crate::sweep::args::Args;

impl Plan {
    /// Arguments in `args` that differ from this plan, each with its flag.
    ///
    /// # Errors
    /// Invalid settings.
    pub(in crate::sweep) fn differences(&self, args: &Args) -> Result<Vec<String>, Error> {
        let (load, has) = (&args.load, |list: &[_]| !list.is_empty());
        // Flag, whether it is given, and the place of its value in the stored plan.
        let flags = [
            ("--replay", !args.replay.is_empty(), "/replay"),
            ("--verify", args.verify.is_some(), "/verify"),
            ("--model", load.model.is_some(), "/load/model"),
            ("--profile", load.profile.is_some(), "/load/profile"),
            (
                "--compute-ms",
                load.compute_ms.is_some(),
                "/load/compute_ms",
            ),
            (
                "--compute-kind",
                load.compute_kind.is_some(),
                "/load/compute_kind",
            ),
            ("--slow-rank", load.slow_rank.is_some(), "/load/slow_rank"),
            ("-np", !args.np.is_empty(), "/design/np"),
            ("--fusion-mb", args.fusion_mb.is_some(), FUSION),
            (
                "--cycle-ms",
                args.cycle_ms.is_some(),
                "/design/cycle_time_ms",
            ),
            ("--cache", has(&args.cache), "/design/cache"),
            (
                "--hierarchical-allreduce",
                has(&args.hierarchical_allreduce),
                "/design/hierarchical_allreduce",
            ),
            ("--hosts", args.hosts.is_some(), "/hosts"),
            ("--mpi-args", args.mpi_args.is_some(), "/mpi_args"),
            ("--repeats", args.repeats.is_some(), "/design/repeats"),
            ("--confirm", args.confirm.is_some(), "/design/confirm"),
            ("--steps", args.steps.is_some(), "/design/steps"),
            ("--warmup", args.warmup.is_some(), "/design/warmup"),
            ("--seed", args.seed.is_some(), "/design/seed"),
        ];
        let [then, now] = [self, &Self::of(args, NP_DEFAULT)?].map(|plan| {
            // A plan is written as JSON anyway.
            serde_json::to_value(plan).unwrap_or_default()
        });
        let mut differences = Vec::new();
        let mut compare = |flag: &str, then: String, now: String| {
            if then != now {
                differences.push(format!("{flag} is {then} there and {now} here"));
            }
        };
        for (flag, _, place) in flags.into_iter().filter(|(_, given, _)| *given) {
            let at = |plan: &Value| {
                plan.pointer(place)
                    .map_or_else(String::new, |v| text(place, v))
            };
            compare(flag, at(&then), at(&now));
        }
        for (variable, now) in settings(args)? {
            let then = self.settings.get(&variable).cloned();
            compare(&variable, then.unwrap_or_else(|| "unset".to_owned()), now);
        }
        Ok(differences)
    }
}

const FUSION: &str = "/design/fusion_threshold_bytes";

/// Formats a stored value as its flag takes it.
fn text(place: &str, value: &Value) -> String {
    match value {
        Value::Null => "not given".to_owned(),
        Value::Array(values) if values.is_empty() => "not given".to_owned(),
        Value::Array(values) => joined(place, values.iter()),
        Value::Object(fields) => joined(place, fields.values()),
        Value::String(text) => text.clone(),
        Value::Bool(true) => "on".to_owned(),
        Value::Bool(false) => "off".to_owned(),
        Value::Number(number) => match number.as_f64() {
            Some(bytes) if place == FUSION => (bytes / f64::from(1 << 20)).to_string(),
            Some(value) if number.is_f64() => value.to_string(),
            _ => number.to_string(),
        },
    }
}

fn joined<'a>(place: &str, values: impl Iterator<Item = &'a Value>) -> String {
    let texts: Vec<String> = values.map(|value| text(place, value)).collect();
    texts.join(",")
}
