//! Knobs: settings that are read at the start. The environment, flags, `ronde knobs` and the
//! documentation use one table.
//!
//! `HOROVOD_*` variables have Horovod's meaning; Ronde's own are `RONDE_*`. Two rules are stricter
//! than Horovod's:
//!
//! - Horovod reads numbers with `strtol`, which takes an invalid value as 0 and `64MB` as 64. Here
//!   a value that is not a number, or is out of range, is a [`KnobError`] that names the variable,
//!   the value and the accepted values.
//! - An unknown `RONDE_*` variable gives a [`KnobWarning`], with the most similar name if one is
//!   similar. So does a `HOROVOD_*` variable with a name similar to one that is read here, and a
//!   variable whose prefix is misspelt (`HORVOD_CYCLE_TIME`). Names that only Horovod reads give no
//!   warning: those of [`Scope::NotHere`] and [`IGNORED`].
//!
//! Sizes also take binary suffixes (`64MB` = `64MiB` = 67108864). An empty variable counts as
//! unset.
//!
//! ```
//! use ronde::knobs::Knobs;
//!
//! let knobs = Knobs::from_lookup(|name| (name == "HOROVOD_FUSION_THRESHOLD").then_some("64MB"))?;
//! assert_eq!(knobs.fusion_threshold_bytes, 64 << 20);
//! assert_eq!(knobs.cycle_time_ms, 1.0); // the default
//! assert!(knobs.fixed.fusion_threshold && !knobs.fixed.cycle_time);
//! # Ok::<(), ronde::knobs::KnobError>(())
//! ```

mod elsewhere;
mod error;
mod knob;
mod setting;
mod table;
mod values;

pub use elsewhere::{IGNORED, IgnoredNames};
pub use error::{KnobError, KnobWarning};
pub use knob::{Flag, FlagForm, Kind, Knob, Scope};
pub use ronde_job::settings::{CYCLE_TIME_MS_MAX, FUSION_THRESHOLD_BYTES_MAX};
pub use table::{KNOBS, Knobs};
pub use values::{AutotuneStart, Backend, Link, LogLevel, StepRange, TimelineTarget};

use setting::Setting;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use crate::error::Error;

/// Default time limit of the start of a job that `ronde run` starts, and of a process set.
pub const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Variable of the log level.
const LOG_LEVEL: &str = "HOROVOD_LOG_LEVEL";

/// Smallest Jaro-Winkler similarity of a suggested name. Names with transposed or missing letters
/// have more than 0.9; less similar names would mislead.
pub const SIMILARITY_MIN: f64 = 0.85;
/// Smallest similarity of the rest of a name with a misspelt prefix. It is higher, because other
/// software has similar prefixes.
const SIMILARITY_MIN_OF_STEM: f64 = 0.95;

/// Tunable knobs that the environment sets: the tuner does not change them, as in Horovod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FixedKnobs {
    /// `HOROVOD_FUSION_THRESHOLD` is set.
    pub fusion_threshold: bool,
    /// `RONDE_GPU_FUSION_THRESHOLD` is set.
    pub gpu_fusion_threshold: bool,
    /// `HOROVOD_CYCLE_TIME` is set.
    pub cycle_time: bool,
    /// `HOROVOD_CACHE_CAPACITY` is set.
    pub cache_capacity: bool,
    /// `HOROVOD_HIERARCHICAL_ALLREDUCE` is set.
    pub hierarchical_allreduce: bool,
    /// `HOROVOD_HIERARCHICAL_ALLGATHER` is set.
    pub hierarchical_allgather: bool,
}

/// A knob's value as an environment variable, and whether it was set: a row of `ronde knobs
/// --effective`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effective {
    /// Name of the knob.
    pub name: &'static str,
    /// Its environment variable.
    pub env: &'static str,
    /// The value in force, as text.
    pub value: OsString,
    /// Whether the environment set it; otherwise it is the default.
    pub from_env: bool,
}

impl Knobs {
    /// Time that ranks wait for a silent rank; `None` without a limit.
    pub(crate) fn stall_shutdown(&self) -> Option<Duration> {
        let is_limited = !self.stall_check_disable && self.stall_shutdown_seconds > 0;
        is_limited.then(|| Duration::from_secs(self.stall_shutdown_seconds))
    }

    /// Time after which a wait for other ranks logs a warning; zero: never.
    pub(crate) fn stall_warning(&self) -> Duration {
        match self.stall_check_disable {
            true => Duration::ZERO,
            false => Duration::from_secs(self.stall_warning_seconds),
        }
    }

    /// Outcome of opening an output of the job: a log, a page. After a reset of an elastic job an
    /// error is a warning, and the result the default: the host may be another one, or its disk
    /// full, and the training goes on.
    pub(crate) fn unless_reset<T: Default>(&self, opened: Result<T, Error>) -> Result<T, Error> {
        match opened {
            Err(error) if self.resets > 0 => {
                tracing::warn!("{error}; the job goes on without it");
                Ok(T::default())
            }
            opened => opened,
        }
    }

    /// Knobs with these variables, whose values they accept.
    #[cfg(test)]
    pub(crate) fn of(variables: &[(&str, &str)]) -> Self {
        let value = |name: &str| {
            let set = variables.iter().find(|(known, _)| *known == name);
            set.map(|(_, value)| *value)
        };
        Self::from_lookup(value).expect("values that the knobs accept")
    }

    /// Time limit of the start; `otherwise` if the environment sets none. Horovod limits checks of
    /// its launcher with one variable and the ranks' connections with another: the longer one holds
    /// here.
    pub fn start_timeout(&self, otherwise: Duration) -> Duration {
        let seconds = self.start_timeout_seconds.max(self.gloo_timeout_seconds);
        seconds.map_or(otherwise, Duration::from_secs)
    }

    /// Reads the process's environment.
    ///
    /// # Errors
    /// [`KnobError`] for the first variable, in the table's order, with a value that its knob does
    /// not accept.
    pub fn from_env() -> Result<Knobs, KnobError> {
        let mut knobs = Knobs::from_lookup(|name| std::env::var_os(name))?;
        knobs.warn_of_unknown_variables();
        Ok(knobs)
    }

    /// Adds the [warnings](unknown_variables) about the process's environment.
    pub fn warn_of_unknown_variables(&mut self) {
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        self.warnings.extend(unknown_variables(names));
    }

    /// Reads variables through `lookup`, which returns a variable's value, or `None` if it is
    /// unset.
    ///
    /// # Errors
    /// [`KnobError`] for the first variable, in the table's order, with a value that its knob does
    /// not accept.
    pub fn from_lookup<T: Into<OsString>>(
        lookup: impl Fn(&str) -> Option<T>,
    ) -> Result<Knobs, KnobError> {
        let lookup = |name: &str| {
            lookup(name)
                .map(Into::into)
                .filter(|value: &OsString| !value.is_empty())
        };
        let level = lookup(LOG_LEVEL);
        let is_level = |text: &OsString| setting::word(text, LogLevel::WORDS).is_some();
        let unknown_level = level.filter(|text| !is_level(text));
        let is_ignored = |name: &str| name == LOG_LEVEL && unknown_level.is_some();
        let mut knobs = Knobs::read(&|name: &str| lookup(name).filter(|_| !is_ignored(name)))?;
        if let Some(text) = &unknown_level {
            let found = text.to_string_lossy().into_owned();
            knobs.warnings.push(KnobWarning::LogLevel { found });
        }
        knobs.fixed = FixedKnobs {
            fusion_threshold: lookup("HOROVOD_FUSION_THRESHOLD").is_some(),
            gpu_fusion_threshold: lookup("RONDE_GPU_FUSION_THRESHOLD").is_some(),
            cycle_time: lookup("HOROVOD_CYCLE_TIME").is_some(),
            cache_capacity: lookup("HOROVOD_CACHE_CAPACITY").is_some(),
            hierarchical_allreduce: lookup("HOROVOD_HIERARCHICAL_ALLREDUCE").is_some(),
            hierarchical_allgather: lookup("HOROVOD_HIERARCHICAL_ALLGATHER").is_some(),
        };
        let (warning_seconds, shutdown_seconds) =
            (knobs.stall_warning_seconds, knobs.stall_shutdown_seconds);
        if shutdown_seconds > 0 && shutdown_seconds < warning_seconds {
            knobs.warnings.push(KnobWarning::StallShutdownIgnored {
                shutdown_seconds,
                warning_seconds,
            });
            knobs.stall_shutdown_seconds = 0;
        }
        let (first, last) = (knobs.byteps_trace_first_step, knobs.byteps_trace_last_step);
        if knobs.byteps_trace && last < first {
            return Err(KnobError {
                env: "BYTEPS_TRACE_END_STEP",
                name: "byteps_trace_last_step",
                found: last.to_string(),
                expected: format!("a step from BYTEPS_TRACE_START_STEP={first} on"),
                default: "20",
            });
        }
        Ok(knobs)
    }

    /// Checks values that the program has set.
    ///
    /// # Errors
    /// The first one, in the table's order, that its knob does not accept.
    pub(crate) fn check(&self) -> Result<(), KnobError> {
        let printed = self.print();
        let set = |env: &str| {
            let (_, value) = printed.iter().find(|(knob, _)| knob.env == env)?;
            (!value.is_empty()).then(|| value.clone())
        };
        Knobs::read(&set).map(drop)
    }

    /// Returns every knob that is read here, with the value in force and its origin. `lookup` must
    /// be the one that these knobs were read through.
    pub fn effective<T: Into<OsString>>(
        &self,
        lookup: impl Fn(&str) -> Option<T>,
    ) -> Vec<Effective> {
        let row = |(knob, value): (&'static Knob, OsString)| Effective {
            name: knob.name,
            env: knob.env,
            value,
            from_env: lookup(knob.env).is_some_and(|found| !found.into().is_empty()),
        };
        self.print().into_iter().map(row).collect()
    }

    /// File of rank 0's timeline from initialization on, if one is named.
    pub fn timeline_path(&self) -> Option<&Path> {
        match &self.timeline {
            Some(TimelineTarget::File(path)) => Some(path),
            Some(TimelineTarget::Dynamic) | None => None,
        }
    }
}

impl Default for Knobs {
    /// Values in force when no variable is set.
    fn default() -> Knobs {
        Knobs::read(&|_| None).expect("the table's defaults are values that its knobs take")
    }
}

/// Returns the knob with this name.
pub fn find(name: &str) -> Option<&'static Knob> {
    KNOBS.iter().find(|knob| knob.name == name)
}

/// Returns a warning for each of `names` that is probably meant for Ronde but unknown, with the
/// most similar known name: any `RONDE_*` name, a `HOROVOD_*` or `BYTEPS_TRACE_*` name that
/// resembles one read here, and such a name with a misspelt prefix. Other names give no warning,
/// because other software has `HOROVOD_*` names of its own.
pub fn unknown_variables(names: impl IntoIterator<Item = String>) -> Vec<KnobWarning> {
    let ignored = |name: &str| IGNORED.iter().any(|group| group.names.contains(&name));
    let known = |name: &str| KNOBS.iter().any(|knob| knob.env == name) || ignored(name);
    let mut unknown: Vec<String> = names.into_iter().filter(|name| !known(name)).collect();
    unknown.sort();
    let warning = |env: String| {
        let is_of = |prefix: &str| env.starts_with(prefix);
        let similarity_min = if is_of("RONDE_") || is_of("HOROVOD_") || is_of("BYTEPS_TRACE_") {
            SIMILARITY_MIN
        } else if has_misspelt_prefix(&env) {
            SIMILARITY_MIN_OF_STEM
        } else {
            return None;
        };
        let nearest = nearest_variable(&env, similarity_min);
        (nearest.is_some() || is_of("RONDE_")).then_some(KnobWarning::Unknown { env, nearest })
    };
    unknown.into_iter().filter_map(warning).collect()
}

/// Whether the first word of `env` is nearly `HOROVOD` or `RONDE`.
fn has_misspelt_prefix(env: &str) -> bool {
    // Each prefix with the smallest number of edits that makes another word of it.
    const PREFIXES: [(&str, usize); 2] = [("HOROVOD", 2), ("RONDE", 1)];
    let Some((found, _)) = env.split_once('_') else {
        return false;
    };
    PREFIXES.iter().any(|(prefix, distance_max)| {
        found.len().abs_diff(prefix.len()) <= *distance_max
            && strsim::osa_distance(prefix, found) <= *distance_max
    })
}

/// Returns the variable read here that is most similar to `env`, if the similarity is at least
/// `similarity_min`. `HOROVOD_` and `RONDE_` count as equal, because they are often confused.
fn nearest_variable(env: &str, similarity_min: f64) -> Option<&'static str> {
    let stem = |name: &str| {
        name.split_once('_')
            .map_or(name, |(_, stem)| stem)
            .to_owned()
    };
    let found = stem(env);
    let read_here = KNOBS
        .iter()
        .filter(|knob| !matches!(knob.scope, Scope::NotHere(_)));
    let scored = read_here.map(|knob| (strsim::jaro_winkler(&stem(knob.env), &found), knob.env));
    let (similarity, nearest) = scored.max_by(|(a, _), (b, _)| a.total_cmp(b))?;
    (similarity >= similarity_min).then_some(nearest)
}

/// Reads one knob; called by the table's macro.
fn read<T: Setting>(name: &str, lookup: &dyn Fn(&str) -> Option<OsString>) -> Result<T, KnobError> {
    let knob = find(name).expect("the macro makes a row for every field");
    let text = lookup(knob.env).unwrap_or_else(|| knob.default.into());
    T::read(&text, &knob.kind).ok_or_else(|| KnobError {
        env: knob.env,
        name: knob.name,
        found: text.to_string_lossy().into_owned(),
        expected: knob.kind.expected(),
        default: knob.default,
    })
}

#[cfg(test)]
mod tests;
