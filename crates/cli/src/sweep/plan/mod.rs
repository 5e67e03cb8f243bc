//! Plan of a sweep, stored in `sweep.json`: created from the arguments, or read from the folder and
//! compared with them.

mod differences;
mod given;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::args::Args;
use super::report::joined;
use crate::argv::quoted;
use crate::bench::LoadArgs;
use crate::error::Error;
use crate::program;
use crate::run::Elsewhere;
pub(super) use given::notes;
use given::{NP_DEFAULT, design, settings};
use ronde::knobs::{Knobs, Link};
use ronde_lab::bench::Workload;
use ronde_lab::sweep::{Design, Machine, Point};

/// Version of the file format.
const PLAN_VERSION: u32 = 1;

/// Most points of a sweep.
const POINTS_MOST: usize = 10_000;

/// Longest cycle time, as for the flag.
const CYCLE_MS_MOST: f64 = crate::replay::CYCLE_MS.bounds.1;

/// Plan of a sweep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Plan {
    /// Version of the file format.
    pub(super) ronde_sweep: u32,
    /// Command that started the sweep.
    pub(super) command: String,
    /// Start time in UTC.
    pub(super) started: String,
    /// Version of this program.
    pub(super) ronde: String,
    pub(super) machine: Machine,
    /// Recording from which step times are predicted; empty if the grid is measured.
    pub(super) replay: Vec<PathBuf>,
    /// Number of the best predicted settings to measure.
    pub(super) verify: Option<u32>,
    /// Whether the measured job is the recording's own, from a profile in the folder.
    pub(super) reenacted: bool,
    /// Hosts and their slots, as in `node1:2,node2:2`; `None` for this machine alone.
    #[serde(default)]
    pub(super) hosts: Option<String>,
    /// Additional options for `mpirun`.
    #[serde(default)]
    pub(super) mpi_args: Option<String>,
    /// Load of each step, with all defaults filled in; meaningless if nothing is measured.
    pub(super) load: LoadArgs,
    pub(super) tensors: usize,
    pub(super) bytes_per_step: usize,
    /// Variables in force, without the swept ones.
    pub(super) settings: BTreeMap<String, String>,
    pub(super) design: Design,
    /// Points of the design, for readers of the file.
    pub(super) points: Vec<Point>,
}

impl Plan {
    /// Creates the plan of a new sweep.
    ///
    /// # Errors
    /// Invalid settings, the tuner is on, too many points.
    pub(super) fn new(args: &Args, workload: &Workload) -> Result<Self, Error> {
        let mut plan = Self::of(args, NP_DEFAULT)?;
        plan.describe(workload);
        plan.checked()
    }

    /// Creates the plan of a sweep from a recording of `np` ranks.
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
            reenacted: args.verify.is_some()
                && args.load.model.is_none()
                && args.load.profile.is_none(),
            hosts: args.hosts.clone(),
            mpi_args: args.mpi_args.clone(),
            load: args.load.resolved(),
            tensors: 0,
            bytes_per_step: 0,
            settings: settings(args)?,
            design: design(args, np),
            points: Vec::new(),
        })
    }

    /// Stores the size of the workload.
    pub(super) fn describe(&mut self, workload: &Workload) {
        (self.tensors, self.bytes_per_step) = (workload.tensors.len(), workload.bytes());
    }

    /// Whether the sweep measures anything.
    pub(super) fn is_measured(&self) -> bool {
        self.replay.is_empty() || self.verify.is_some()
    }

    /// Checks that the profile has not changed since the plan was made.
    pub(super) fn check_workload(&self, workload: &Workload) -> Result<(), Error> {
        let words = |tensors, bytes| format!("{tensors} tensors of {bytes} bytes");
        let then = words(self.tensors, self.bytes_per_step);
        let now = words(workload.tensors.len(), workload.bytes());
        if then == now {
            return Ok(());
        }
        let profile = self.load.profile.as_ref();
        let profile = profile.map(|path| path.display().to_string());
        Err(Error::OtherProfile {
            profile: profile.unwrap_or_else(|| workload.name.clone()),
            then,
            now,
        })
    }

    /// Returns the plan with its points if it is valid.
    fn checked(mut self) -> Result<Self, Error> {
        let design = &self.design;
        let count = lengths(design).into_iter().product();
        if count > POINTS_MOST {
            return Err(Error::TooManyPoints {
                points: count,
                most: POINTS_MOST,
            });
        }
        if self.is_measured() {
            for &np in &design.np {
                self.load.check_ranks(np as usize)?;
            }
        }
        self.check_hierarchy()?;
        self.points = self.design.points();
        Ok(self)
    }

    /// Checks that hierarchical operations are possible if the design has them.
    fn check_hierarchy(&self) -> Result<(), Error> {
        let mut many = self.elsewhere().is_some();
        if let Some(elsewhere) = self.elsewhere() {
            for &np in &self.design.np {
                many &= elsewhere.is_elsewhere(np as usize)?;
            }
        }
        let because = match self.replay.is_empty() {
            true => "all ranks are on one host",
            false => "a recording does not contain which ranks share a host",
        };
        match self.design.hierarchical_allreduce.contains(&true) && !many {
            true => Err(Error::Flat { because }),
            false => Ok(()),
        }
    }

    /// Hosts of the ranks, unless all are on this machine.
    pub(super) fn elsewhere(&self) -> Option<Elsewhere<'_>> {
        let hosts = self.hosts.as_deref()?;
        let mpi_args = self.mpi_args.as_deref();
        Some(Elsewhere { hosts, mpi_args })
    }

    /// Parses and checks a stored plan.
    pub(super) fn read(text: &str) -> Result<Self, serde_json::Error> {
        use serde::de::Error as _;
        let plan: Self = serde_json::from_str(text)?;
        let wrong = |what: String| Err(serde_json::Error::custom(what));
        if plan.ronde_sweep != PLAN_VERSION {
            return wrong(format!(
                "its version is {}, and this program reads {PLAN_VERSION}",
                plan.ronde_sweep
            ));
        }
        let design = &plan.design;
        let is_valid = |ms: &f64| (0.0..=CYCLE_MS_MOST).contains(ms);
        let times_are_numbers = design.cycle_time_ms.iter().all(is_valid);
        if lengths(design).contains(&0)
            || design.repeats == 0
            || design.steps == 0
            || design.warmup == 0
            || !design.at_least_ms.is_finite()
            || design.at_least_ms < 0.0
            || !times_are_numbers
        {
            return wrong(
                "its design is invalid: lists must have values, counts must be above 0".to_owned(),
            );
        }
        let points = plan.points.clone();
        let plan = plan.checked().map_err(serde_json::Error::custom)?;
        if plan.points != points {
            return wrong("its points do not match its design".to_owned());
        }
        Ok(plan)
    }

    /// Differences between this machine and program and those of the plan.
    pub(super) fn changes_since(&self) -> Vec<String> {
        let mut changes = self.machine.differences(&Machine::here());
        let ronde = env!("CARGO_PKG_VERSION");
        if self.ronde != ronde {
            changes.push(format!("ronde: {} then, {ronde} now", self.ronde));
        }
        changes
    }

    /// Name of the swept model or profile.
    pub(super) fn name(&self) -> String {
        let profile = self.load.profile.as_ref().and_then(|path| path.file_name());
        let name = profile.map(|name| name.to_string_lossy().into_owned());
        name.or_else(|| self.load.model.clone()).unwrap_or_default()
    }

    /// Name of the job with its load, as a short text.
    pub(super) fn job(&self) -> String {
        joined(&self.name(), &self.how())
    }

    /// Load of the job as a short text; empty if it is the default.
    pub(super) fn how(&self) -> String {
        let mut words = Vec::new();
        let (ms, kind) = (self.load.compute_ms(), self.load.compute_kind().as_str());
        if ms > 0.0 {
            words.push(format!("{ms} ms of compute ({kind})"));
        }
        if let Some(slow) = self.load.slow_rank {
            words.push(format!("rank {} slower by {} ms", slow.rank, slow.ms));
        }
        if let Some(hosts) = &self.hosts {
            words.push(format!("on {hosts}"));
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

/// Command line of this process, quoted for a shell.
fn command() -> String {
    let arguments = program::arguments().iter().cloned();
    let words: Vec<OsString> = ["ronde".into()].into_iter().chain(arguments).collect();
    quoted(&words)
}

/// Number of values in each list of a design.
fn lengths(design: &Design) -> [usize; 5] {
    [
        design.np.len(),
        design.fusion_threshold_bytes.len(),
        design.cycle_time_ms.len(),
        design.cache.len(),
        design.hierarchical_allreduce.len(),
    ]
}

#[cfg(test)]
mod tests;
