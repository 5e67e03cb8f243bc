//! Conversion of the arguments to a plan: the design of the sweep, the other settings, and notes
//! for the user.

use std::collections::BTreeMap;

use crate::error::Error;
use crate::knob_flags::NotSwept;
use crate::range::List;
use crate::setting::on;
use crate::sweep::args::Args;
use ronde_lab::sweep::{Design, Point};

/// Number of ranks without `-np`, as for `ronde bench`.
pub(super) const NP_DEFAULT: u32 = 2;
const REPEATS_DEFAULT: u32 = 3;
const STEPS_DEFAULT: u32 = 20;
/// Shortest duration of a measurement if `--steps` is not given: step times that vary by tens of
/// percent cannot be judged by ten milliseconds of them.
const AT_LEAST_MS: f64 = 250.0;
const WARMUP_DEFAULT: u32 = 3;

/// Default grid, in MiB and ms.
const FUSION_MB_DEFAULT: [f64; 6] = [0.0, 1.0, 4.0, 16.0, 64.0, 128.0];
pub(super) const CYCLE_MS_DEFAULT: [f64; 5] = [0.5, 1.0, 2.5, 5.0, 10.0];

/// Settings that change log output but not measurements: a sweep may be resumed with other values.
const TOLD: [&str; 2] = ["HOROVOD_LOG_LEVEL", "HOROVOD_LOG_HIDE_TIME"];

/// Notes on a design for the user before the sweep starts, each once.
pub(in crate::sweep) fn notes(args: &Args) -> Vec<String> {
    let mut notes = Vec::new();
    let mut repeated = |flag: &str, values: Vec<String>| {
        if !values.is_empty() {
            notes.push(format!(
                "{flag} has {} more than once; each value is used once, and --repeats sets how often it is measured",
                values.join(", ")
            ));
        }
    };
    let numbers = |list: &Option<List>| {
        let repeated = list.iter().flat_map(|list| &list.repeated);
        repeated.map(f64::to_string).collect::<Vec<_>>()
    };
    repeated("--fusion-mb", numbers(&args.fusion_mb));
    repeated("--cycle-ms", numbers(&args.cycle_ms));
    repeated("-np", twice(&args.np).iter().map(u32::to_string).collect());
    let words = |values: &[bool]| {
        let twice = twice(values).into_iter();
        twice.map(|one| on(one).to_owned()).collect()
    };
    repeated("--cache", words(&args.cache));
    let hierarchical = words(&args.hierarchical_allreduce);
    repeated("--hierarchical-allreduce", hierarchical);
    let flags: [&str; NotSwept::VARIABLES.len()] =
        ["--fusion-mb", "--cycle-ms", "--hierarchical-allreduce"];
    for (variable, flag) in NotSwept::VARIABLES.into_iter().zip(flags) {
        let value = args.flags.lookup(variable);
        if value.is_some_and(|value| !value.is_empty()) {
            notes.push(format!(
                "{variable} has no effect here: a sweep sets it itself, see {flag}"
            ));
        }
    }
    notes
}

/// Returns the design; `np_default` is the number of ranks if none is given.
pub(super) fn design(args: &Args, np_default: u32) -> Design {
    let has_lists = args.fusion_mb.is_some()
        || args.cycle_ms.is_some()
        || !args.cache.is_empty()
        || !args.hierarchical_allreduce.is_empty();
    let default = Point::default_of(NP_DEFAULT);
    let values = |given: &Option<List>, grid: &[f64], one: f64| match given {
        Some(list) => list.values.clone(),
        None if has_lists => vec![one],
        None => grid.to_vec(),
    };
    let fusion_mb = values(&args.fusion_mb, &FUSION_MB_DEFAULT, default.fusion_mb());
    let cycle_time_ms = values(&args.cycle_ms, &CYCLE_MS_DEFAULT, default.cycle_time_ms);
    let mut np = args.np.clone();
    np.sort_unstable();
    np.dedup();
    if np.is_empty() {
        np.push(np_default);
    }
    let bytes = |mb: f64| (mb * f64::from(1 << 20)).round() as u64;
    let hierarchical = &args.hierarchical_allreduce;
    let repeats = args.repeats.unwrap_or(REPEATS_DEFAULT);
    let confirm = if repeats == 1 { 0 } else { 2 * repeats };
    Design {
        np,
        fusion_threshold_bytes: fusion_mb.into_iter().map(bytes).collect(),
        cycle_time_ms,
        cache: on_off(&args.cache, default.cache),
        hierarchical_allreduce: on_off(hierarchical, default.hierarchical_allreduce),
        repeats,
        confirm: args.confirm.unwrap_or(confirm),
        warmup: args.warmup.unwrap_or(WARMUP_DEFAULT),
        steps: args.steps.unwrap_or(STEPS_DEFAULT),
        at_least_ms: args.steps.map_or(AT_LEAST_MS, |_| 0.0),
        budget_s: args.budget.map(|budget| budget.as_secs_f64()),
        // Numbers in JSON readers have 53 bits.
        seed: args.seed.unwrap_or_else(|| rand::random::<u64>() >> 11),
    }
}

/// Variables in force, by flags or by the environment, without the swept ones.
///
/// # Errors
/// A value that its knob does not accept, or that excludes the default, which is always measured;
/// the tuner is on.
pub(super) fn settings(args: &Args) -> Result<BTreeMap<String, String>, Error> {
    let knobs = args.flags.knobs()?;
    if knobs.autotune {
        return Err(Error::Autotune);
    }
    let is_measured = args.replay.is_empty() || args.verify.is_some();
    if is_measured && knobs.cache_capacity == 0 {
        return Err(Error::DefaultExcluded {
            setting: "HOROVOD_CACHE_CAPACITY=0",
            default: "the default has the response cache on",
            instead: "unset it, and give --cache on,off",
        });
    }
    if is_measured && knobs.disable_group_fusion {
        return Err(Error::DefaultExcluded {
            setting: "HOROVOD_DISABLE_GROUP_FUSION=1",
            default: "the default fuses tensors",
            instead: "unset it, and give --fusion-mb with 0",
        });
    }
    let rows = knobs.effective(|name| args.flags.lookup(name));
    let is_kept = |name: &str| !NotSwept::VARIABLES.contains(&name) && !TOLD.contains(&name);
    Ok(rows
        .into_iter()
        .filter(|row| row.from_env && is_kept(row.env))
        .map(|row| (row.env.to_owned(), row.value.to_string_lossy().into_owned()))
        .collect())
}

/// Both values, or the requested one; `default` if none is requested.
fn on_off(switches: &[bool], default: bool) -> Vec<bool> {
    match (switches.contains(&true), switches.contains(&false)) {
        (false, false) => vec![default],
        (true, true) => vec![true, false],
        (on, _) => vec![on],
    }
}

/// Values that occur more than once.
fn twice<T: Copy + PartialEq>(values: &[T]) -> Vec<T> {
    let mut found = Vec::new();
    for (index, value) in values.iter().enumerate() {
        if values[..index].contains(value) && !found.contains(value) {
            found.push(*value);
        }
    }
    found
}
