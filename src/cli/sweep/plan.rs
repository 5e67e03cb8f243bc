//! What a sweep is to do, as `sweep.json` keeps it: made of the arguments, or read from the folder and held against them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::args::Args;
use super::error::Error;
use crate::bench::Workload;
use crate::cli::bench::LoadArgs;
use crate::cli::knob_flags::NotSwept;
use crate::cli::replay::Switch;
use crate::knobs::{Knobs, Link};
use crate::sweep::{Design, Machine, Point};

/// Version of the file.
const PLAN_VERSION: u32 = 1;

/// Most points of a sweep.
const POINTS_MOST: usize = 10_000;

/// Ranks where `-np` does not say, as for `ronde bench`.
const NP_DEFAULT: u32 = 2;
const REPEATS_DEFAULT: u32 = 3;
const STEPS_DEFAULT: u32 = 20;
const WARMUP_DEFAULT: u32 = 3;

/// The grid where none is given, in MiB and ms.
const FUSION_MB_DEFAULT: [f64; 6] = [0.0, 1.0, 4.0, 16.0, 64.0, 128.0];
const CYCLE_MS_DEFAULT: [f64; 5] = [0.5, 1.0, 2.5, 5.0, 10.0];

/// Settings that change what is said, not what is measured: a sweep may go on with others.
const TOLD: [&str; 2] = ["HOROVOD_LOG_LEVEL", "HOROVOD_LOG_HIDE_TIME"];

/// See the module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Plan {
    /// Version of the file.
    pub(super) ronde_sweep: u32,
    /// The command that began it.
    pub(super) command: String,
    /// When that was, in UTC.
    pub(super) started: String,
    /// Version of this program.
    pub(super) ronde: String,
    pub(super) machine: Machine,
    /// The recording that step times are predicted from; none where the grid is measured.
    pub(super) replay: Vec<PathBuf>,
    /// How many of the best predicted are measured.
    pub(super) verify: Option<u32>,
    /// Whether what is measured is the recording's own job, from a profile in the folder.
    pub(super) reenacted: bool,
    /// What each step reduces, with all defaults written out; meaningless where nothing is measured.
    pub(super) load: LoadArgs,
    pub(super) tensors: usize,
    pub(super) bytes_per_step: usize,
    /// The variables in force besides those that are swept.
    pub(super) settings: BTreeMap<String, String>,
    pub(super) design: Design,
    /// What follows from the design, for whoever reads the file.
    pub(super) points: Vec<Point>,
}

impl Plan {
    /// The plan of a new sweep.
    ///
    /// # Errors
    /// Settings that are wrong, the tuner that is on, too many points.
    pub(super) fn new(args: &Args, workload: &Workload) -> Result<Self, Error> {
        let mut plan = Self::of(args, NP_DEFAULT)?;
        plan.describe(workload);
        plan.checked()
    }

    /// The plan of a sweep from a recording of `np` ranks.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub(super) fn of_recording(args: &Args, np: u32) -> Result<Self, Error> {
        Self::of(args, np)?.checked()
    }

    fn of(args: &Args, np: u32) -> Result<Self, Error> {
        let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
        Ok(Self {
            ronde_sweep: PLAN_VERSION,
            command: command(),
            started: format!("{:.0}", Timestamp::now()),
            ronde: env!("CARGO_PKG_VERSION").to_owned(),
            machine: Machine::here(),
            replay: args.replay.iter().map(absolute).collect(),
            verify: args.verify,
            reenacted: args.verify.is_some() && args.load.model.is_none() && args.load.profile.is_none(),
            load: args.load.resolved(),
            tensors: 0,
            bytes_per_step: 0,
            settings: settings(args)?,
            design: design(args, np),
            points: Vec::new(),
        })
    }

    /// Notes what is reduced.
    pub(super) fn describe(&mut self, workload: &Workload) {
        (self.tensors, self.bytes_per_step) = (workload.tensors.len(), workload.bytes());
    }

    /// Whether anything is measured at all.
    pub(super) fn is_measured(&self) -> bool {
        self.replay.is_empty() || self.verify.is_some()
    }

    /// Checks that a profile is still what it was.
    ///
    /// # Errors
    /// [`Error::OtherProfile`].
    pub(super) fn check_workload(&self, workload: &Workload) -> Result<(), Error> {
        let words = |tensors, bytes| format!("{tensors} tensors of {bytes} bytes");
        let then = words(self.tensors, self.bytes_per_step);
        let now = words(workload.tensors.len(), workload.bytes());
        if then == now {
            return Ok(());
        }
        let profile = self.load.profile.as_ref().map(|path| path.display().to_string());
        Err(Error::OtherProfile {
            profile: profile.unwrap_or_else(|| workload.name.clone()),
            then,
            now,
        })
    }

    /// The plan with its points, if it can be carried out.
    fn checked(mut self) -> Result<Self, Error> {
        let design = &self.design;
        let per_rank = [
            design.fusion_threshold_bytes.len(),
            design.cycle_time_ms.len(),
            design.cache.len(),
            design.hierarchical_allreduce.len(),
        ];
        let count = design.np.len() * per_rank.into_iter().product::<usize>();
        if count > POINTS_MOST {
            return Err(Error::TooMany {
                points: count,
                most: POINTS_MOST,
            });
        }
        if self.is_measured() {
            for &np in &design.np {
                self.load.check_ranks(np as usize)?;
            }
        }
        self.points = self.design.points();
        Ok(self)
    }

    /// A plan that was read, or what is wrong with it.
    pub(super) fn read(text: &str) -> Result<Self, serde_json::Error> {
        use serde::de::Error as _;
        let plan: Self = serde_json::from_str(text)?;
        let wrong = |what: String| Err(serde_json::Error::custom(what));
        if plan.ronde_sweep != PLAN_VERSION {
            return wrong(format!(
                "it is of version {}, this ronde knows {PLAN_VERSION}",
                plan.ronde_sweep
            ));
        }
        let design = &plan.design;
        let lists = [
            design.np.len(),
            design.fusion_threshold_bytes.len(),
            design.cycle_time_ms.len(),
            design.cache.len(),
            design.hierarchical_allreduce.len(),
        ];
        let times_are_numbers = design
            .cycle_time_ms
            .iter()
            .all(|ms| (0.0..=CYCLE_MS_MOST).contains(ms));
        if lists.contains(&0)
            || design.repeats == 0
            || design.steps == 0
            || design.warmup == 0
            || !times_are_numbers
        {
            return wrong("its design is none: lists must have values, counts must be above 0".to_owned());
        }
        let points = plan.points.clone();
        let plan = plan.checked().map_err(serde_json::Error::custom)?;
        if plan.points != points {
            return wrong("its points do not follow from its design".to_owned());
        }
        Ok(plan)
    }

    /// What in `args` is given and not as in this plan, each with its flag.
    ///
    /// # Errors
    /// Settings that are wrong.
    pub(super) fn differences(&self, args: &Args) -> Result<Vec<String>, Error> {
        let mut differences = Vec::new();
        let mut compare = |flag: &str, given: Option<String>, planned: String| {
            if let Some(given) = given.filter(|given| *given != planned) {
                differences.push(format!("{flag} is {planned} there and {given} here"));
            }
        };
        let (was, now) = (&self.load, args.load.resolved());
        let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "not given".to_owned());
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let paths = |paths: &[PathBuf]| {
            let paths = paths.iter().filter_map(|path| std::path::absolute(path).ok());
            let texts: Vec<String> = paths.map(|path| path.display().to_string()).collect();
            (!texts.is_empty()).then(|| texts.join(" "))
        };
        compare("--replay", paths(&args.replay), text(&paths(&self.replay)));
        let number = |number: Option<u32>| number.map(|number| number.to_string());
        compare("--verify", number(args.verify), text(&number(self.verify)));
        compare("--model", args.load.model.clone(), text(&was.model));
        let given = args.load.profile.as_ref().and(path(&now.profile));
        compare("--profile", given, text(&path(&was.profile)));
        compare(
            "--compute-ms",
            args.load.compute_ms.map(|ms| ms.to_string()),
            was.compute_ms().to_string(),
        );
        let kind = args.load.compute_kind.map(|kind| kind.as_str().to_owned());
        compare("--compute-kind", kind, was.compute_kind().as_str().to_owned());
        let slow = |load: &LoadArgs| load.slow_rank.map(|slow| format!("{},{}", slow.rank, slow.ms));
        compare("--slow-rank", slow(&args.load), text(&slow(was)));

        let (was, now) = (&self.design, design(args, NP_DEFAULT));
        let given = |is_given: bool, list: String| is_given.then_some(list);
        compare("-np", given(!args.np.is_empty(), list(&now.np)), list(&was.np));
        compare(
            "--fusion-mb",
            given(args.fusion_mb.is_some(), list_mb(&now)),
            list_mb(was),
        );
        compare(
            "--cycle-ms",
            given(args.cycle_ms.is_some(), list(&now.cycle_time_ms)),
            list(&was.cycle_time_ms),
        );
        compare(
            "--cache",
            given(!args.cache.is_empty(), switches(&now.cache)),
            switches(&was.cache),
        );
        compare("--repeats", number(args.repeats), was.repeats.to_string());
        compare("--confirm", number(args.confirm), was.confirm.to_string());
        compare("--steps", number(args.steps), was.steps.to_string());
        compare("--warmup", number(args.warmup), was.warmup.to_string());
        compare(
            "--seed",
            args.seed.map(|seed| seed.to_string()),
            was.seed.to_string(),
        );
        for (variable, now) in settings(args)? {
            let was = self.settings.get(&variable).cloned();
            compare(&variable, Some(now), was.unwrap_or_else(|| "unset".to_owned()));
        }
        Ok(differences)
    }

    /// In what this machine and program are not those of the plan.
    pub(super) fn changes_since(&self) -> Vec<String> {
        let mut changes = self.machine.differences(&Machine::here());
        let ronde = env!("CARGO_PKG_VERSION");
        if self.ronde != ronde {
            changes.push(format!("ronde: {} then, {ronde} now", self.ronde));
        }
        changes
    }

    /// What was swept, in a few words.
    pub(super) fn job(&self) -> String {
        let profile = self.load.profile.as_ref().and_then(|path| path.file_name());
        let name = profile.map(|name| name.to_string_lossy().into_owned());
        let mut words = vec![name.or_else(|| self.load.model.clone()).unwrap_or_default()];
        let (ms, kind) = (self.load.compute_ms(), self.load.compute_kind().as_str());
        if ms > 0.0 {
            words.push(format!("{ms} ms of compute ({kind})"));
        }
        if let Some(slow) = self.load.slow_rank {
            words.push(format!("rank {} slower by {} ms", slow.rank, slow.ms));
        }
        if let Some(Link { alpha_us, gb_per_s }) = self.link() {
            words.push(format!("link shaped to {alpha_us} µs and {gb_per_s} GB/s"));
        }
        words.join(", ")
    }

    fn link(&self) -> Option<Link> {
        let lookup = |name: &str| self.settings.get(name).map(OsString::from);
        Knobs::from_lookup(lookup).ok()?.link
    }
}

/// What of a design is worth saying before it starts: each thing once.
pub(super) fn notes(args: &Args) -> Vec<String> {
    let mut notes = Vec::new();
    let mut repeated = |flag: &str, values: Vec<String>| {
        if !values.is_empty() {
            notes.push(format!(
                "{flag} has {} more than once; each value is taken once, --repeats says how often it is measured",
                values.join(", ")
            ));
        }
    };
    let numbers = |list: &Option<crate::cli::range::List>| {
        let repeated = list.iter().flat_map(|list| &list.repeated);
        repeated.map(f64::to_string).collect::<Vec<_>>()
    };
    repeated("--fusion-mb", numbers(&args.fusion_mb));
    repeated("--cycle-ms", numbers(&args.cycle_ms));
    repeated("-np", twice(&args.np).iter().map(u32::to_string).collect());
    let on_off = |values: &[Switch]| twice(values).into_iter().map(word).collect::<Vec<_>>();
    repeated(
        "--cache",
        on_off(&args.cache).into_iter().map(str::to_owned).collect(),
    );
    if args.hierarchical_allreduce.contains(&Switch::On) {
        notes.push("--hierarchical-allreduce has no effect on one host: it is swept as off".to_owned());
    }
    for (variable, flag) in NotSwept::VARIABLES.into_iter().zip(["--fusion-mb", "--cycle-ms"]) {
        if args.flags.lookup(variable).is_some_and(|value| !value.is_empty()) {
            notes.push(format!(
                "{variable} is set, but has no effect here: a sweep sets it itself, see {flag}"
            ));
        }
    }
    notes
}

/// The longest cycle time, as for the flag.
const CYCLE_MS_MOST: f64 = crate::cli::replay::CYCLE_MS.bounds.1;

fn design(args: &Args, np_default: u32) -> Design {
    let has_lists = args.fusion_mb.is_some()
        || args.cycle_ms.is_some()
        || !args.cache.is_empty()
        || !args.hierarchical_allreduce.is_empty();
    let default = Point::default_of(NP_DEFAULT);
    let values = |given: &Option<crate::cli::range::List>, grid: &[f64], one: f64| match given {
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
    let repeats = args.repeats.unwrap_or(REPEATS_DEFAULT);
    Design {
        np,
        fusion_threshold_bytes: fusion_mb
            .into_iter()
            .map(|mb| (mb * f64::from(1 << 20)).round() as u64)
            .collect(),
        cycle_time_ms,
        cache: on_off(&args.cache, default.cache),
        hierarchical_allreduce: vec![false],
        repeats,
        confirm: args.confirm.unwrap_or(if repeats == 1 { 0 } else { 2 * repeats }),
        warmup: args.warmup.unwrap_or(WARMUP_DEFAULT),
        steps: args.steps.unwrap_or(STEPS_DEFAULT),
        budget_s: args.budget.map(|budget| budget.as_secs_f64()),
        // JSON readers have 53 bits for a number.
        seed: args.seed.unwrap_or_else(|| rand::random::<u64>() >> 11),
    }
}

/// The variables in force besides those that are swept, by flags or by the environment.
///
/// # Errors
/// A value that its knob does not take; the tuner, which is on.
fn settings(args: &Args) -> Result<BTreeMap<String, String>, Error> {
    let knobs = args.flags.knobs()?;
    if knobs.autotune {
        return Err(Error::Autotune);
    }
    let rows = knobs.effective(|name| args.flags.lookup(name));
    let is_kept = |name: &str| !NotSwept::VARIABLES.contains(&name) && !TOLD.contains(&name);
    Ok(rows
        .into_iter()
        .filter(|row| row.from_env && is_kept(row.env))
        .map(|row| (row.env.to_owned(), row.value.to_string_lossy().into_owned()))
        .collect())
}

/// Both values, or the one that is asked for; `default` where nothing is.
fn on_off(switches: &[Switch], default: bool) -> Vec<bool> {
    let values: Vec<bool> = [(Switch::On, true), (Switch::Off, false)]
        .into_iter()
        .filter(|(switch, _)| switches.contains(switch))
        .map(|(_, value)| value)
        .collect();
    if values.is_empty() { vec![default] } else { values }
}

fn word(switch: Switch) -> &'static str {
    match switch {
        Switch::On => "on",
        Switch::Off => "off",
    }
}

fn switches(values: &[bool]) -> String {
    let words = values.iter().map(|&value| if value { "on" } else { "off" });
    words.collect::<Vec<_>>().join(",")
}

fn list<T: ToString>(values: &[T]) -> String {
    values.iter().map(T::to_string).collect::<Vec<_>>().join(",")
}

fn list_mb(design: &Design) -> String {
    let mb = |&bytes: &u64| bytes as f64 / f64::from(1 << 20);
    list(&design.fusion_threshold_bytes.iter().map(mb).collect::<Vec<_>>())
}

/// What is in `values` more than once.
fn twice<T: Copy + PartialEq>(values: &[T]) -> Vec<T> {
    let mut found = Vec::new();
    for (index, value) in values.iter().enumerate() {
        if values[..index].contains(value) && !found.contains(value) {
            found.push(*value);
        }
    }
    found
}

/// This process's command line, to be typed again.
fn command() -> String {
    let quoted = |text: String| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=,./:+@%".contains(c);
        match !text.is_empty() && text.chars().all(is_plain) {
            true => text,
            false => format!("'{}'", text.replace('\'', r"'\''")),
        }
    };
    let arguments = std::env::args_os()
        .skip(1)
        .map(|arg| quoted(arg.to_string_lossy().into_owned()));
    let words: Vec<String> = ["ronde".to_owned()].into_iter().chain(arguments).collect();
    words.join(" ")
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
