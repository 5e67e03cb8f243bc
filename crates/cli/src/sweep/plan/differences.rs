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
        let hierarchical = has(&args.hierarchical_allreduce);
        // Flag, whether it is given, and the object of the stored plan that has its value.
        let flags = [
            ("--replay", !args.replay.is_empty(), ""),
            ("--verify", args.verify.is_some(), ""),
            ("--model", load.model.is_some(), "/load"),
            ("--profile", load.profile.is_some(), "/load"),
            ("--compute-ms", load.compute_ms.is_some(), "/load"),
            ("--compute-kind", load.compute_kind.is_some(), "/load"),
            ("--slow-rank", load.slow_rank.is_some(), "/load"),
            ("-np", !args.np.is_empty(), "/design"),
            ("--fusion-mb", args.fusion_mb.is_some(), "/design"),
            ("--cycle-ms", args.cycle_ms.is_some(), "/design"),
            ("--cache", has(&args.cache), "/design"),
            ("--hierarchical-allreduce", hierarchical, "/design"),
            ("--hosts", args.hosts.is_some(), ""),
            ("--mpi-args", args.mpi_args.is_some(), ""),
            ("--repeats", args.repeats.is_some(), "/design"),
            ("--confirm", args.confirm.is_some(), "/design"),
            ("--steps", args.steps.is_some(), "/design"),
            ("--warmup", args.warmup.is_some(), "/design"),
            ("--seed", args.seed.is_some(), "/design"),
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
        for (flag, _, object) in flags.into_iter().filter(|(_, given, _)| *given) {
            let field = match flag {
                "--fusion-mb" => FUSION.to_owned(),
                "--cycle-ms" => "cycle_time_ms".to_owned(),
                flag => flag.trim_start_matches('-').replace('-', "_"),
            };
            let value = |plan: &Value| {
                let value = plan.pointer(&format!("{object}/{field}"));
                value.map_or_else(String::new, |value| text(&field, value))
            };
            compare(flag, value(&then), value(&now));
        }
        for (variable, now) in settings(args)? {
            let then = self.settings.get(&variable).cloned();
            compare(&variable, then.unwrap_or_else(|| "unset".to_owned()), now);
        }
        Ok(differences)
    }
}

/// Field of the thresholds.
const FUSION: &str = "fusion_threshold_bytes";

/// Formats the stored value of a field as its flag takes it.
fn text(field: &str, value: &Value) -> String {
    match value {
        Value::Null => "not given".to_owned(),
        Value::Array(values) if values.is_empty() => "not given".to_owned(),
        Value::Array(values) => joined(field, values.iter()),
        Value::Object(fields) => joined(field, fields.values()),
        Value::String(text) => text.clone(),
        Value::Bool(true) => "on".to_owned(),
        Value::Bool(false) => "off".to_owned(),
        Value::Number(number) => match number.as_f64() {
            Some(bytes) if field == FUSION => (bytes / f64::from(1 << 20)).to_string(),
            Some(value) if number.is_f64() => value.to_string(),
            _ => number.to_string(),
        },
    }
}

fn joined<'a>(field: &str, values: impl Iterator<Item = &'a Value>) -> String {
    let texts: Vec<String> = values.map(|value| text(field, value)).collect();
    texts.join(",")
}
