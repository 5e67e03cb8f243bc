//! The settings of Ronde: one table, from which the environment, flags, `ronde knobs` and the documentation come.
//!
//! `HOROVOD_*` variables keep Horovod's meaning; Ronde's own are `RONDE_*`. Two departures, both stricter:
//!
//! - Horovod reads numbers with `strtol`, for which junk is 0 and `64MB` is 64. Here a value that is not a number, or is
//!   out of range, is a [`KnobError`] that names the variable, the value and what is allowed.
//! - An unknown `RONDE_*` variable gives a [`KnobWarning`], with the nearest name if one is near; so does a `HOROVOD_*`
//!   variable that is nearly the name of one read here, and one whose prefix is misspelt
//!   (`HORVOD_CYCLE_TIME`). Names that only Horovod knows give none: those of [`Scope::NotHere`] and
//!   [`IGNORED`].
//!
//! As an extra, sizes take binary suffixes (`64MB` = `64MiB` = 67108864). A variable set to the empty text counts as unset.
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

/// Below this Jaro-Winkler similarity a guess only misleads: transposed or missing letters stay above 0.9.
pub const SIMILARITY_MIN: f64 = 0.85;
/// With a misspelt prefix, the rest must be nearly right: other software has similar prefixes.
const SIMILARITY_MIN_OF_STEM: f64 = 0.95;

/// Which tunable knobs are present in the environment: the tuner leaves them alone, as Horovod's does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FixedKnobs {
    /// `HOROVOD_FUSION_THRESHOLD` is set.
    pub fusion_threshold: bool,
    /// `HOROVOD_CYCLE_TIME` is set.
    pub cycle_time: bool,
    /// `HOROVOD_CACHE_CAPACITY` is set.
    pub cache_capacity: bool,
    /// `HOROVOD_HIERARCHICAL_ALLREDUCE` is set.
    pub hierarchical_allreduce: bool,
    /// `HOROVOD_HIERARCHICAL_ALLGATHER` is set.
    pub hierarchical_allgather: bool,
}

/// The knobs' values as environment variables, and which of them were set: what `ronde knobs --effective` shows.
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
    /// How long a silent rank is waited for; none if there is no limit.
    pub(crate) fn stall_shutdown(&self) -> Option<Duration> {
        let is_limited = !self.stall_check_disable && self.stall_shutdown_seconds > 0;
        is_limited.then(|| Duration::from_secs(self.stall_shutdown_seconds))
    }

    /// Reads the process's environment.
    ///
    /// # Errors
    /// [`KnobError`] for the first variable, in the table's order, whose value its knob does not take.
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

    /// Reads variables through `lookup`, which gives a variable's value or `None` where it is unset.
    ///
    /// # Errors
    /// [`KnobError`] for the first variable, in the table's order, whose value its knob does not take.
    pub fn from_lookup<T: Into<OsString>>(lookup: impl Fn(&str) -> Option<T>) -> Result<Knobs, KnobError> {
        let lookup = |name: &str| {
            lookup(name)
                .map(Into::into)
                .filter(|value: &OsString| !value.is_empty())
        };
        let mut knobs = Knobs::read(&lookup)?;
        knobs.fixed = FixedKnobs {
            fusion_threshold: lookup("HOROVOD_FUSION_THRESHOLD").is_some(),
            cycle_time: lookup("HOROVOD_CYCLE_TIME").is_some(),
            cache_capacity: lookup("HOROVOD_CACHE_CAPACITY").is_some(),
            hierarchical_allreduce: lookup("HOROVOD_HIERARCHICAL_ALLREDUCE").is_some(),
            hierarchical_allgather: lookup("HOROVOD_HIERARCHICAL_ALLGATHER").is_some(),
        };
        let (warning_seconds, shutdown_seconds) = (knobs.stall_warning_seconds, knobs.stall_shutdown_seconds);
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

    /// Every knob that is read here, with the value in force and where it came from. `lookup` is the one that these
    /// knobs were read through.
    pub fn effective<T: Into<OsString>>(&self, lookup: impl Fn(&str) -> Option<T>) -> Vec<Effective> {
        let row = |(knob, value): (&'static Knob, OsString)| Effective {
            name: knob.name,
            env: knob.env,
            value,
            from_env: lookup(knob.env).is_some_and(|found| !found.into().is_empty()),
        };
        self.print().into_iter().map(row).collect()
    }

    /// The file that rank 0's timeline goes to from initialization on, if one is named.
    pub fn timeline_path(&self) -> Option<&Path> {
        match &self.timeline {
            Some(TimelineTarget::File(path)) => Some(path),
            Some(TimelineTarget::Dynamic) | None => None,
        }
    }
}

impl Default for Knobs {
    /// The values in force when no variable is set.
    fn default() -> Knobs {
        Knobs::read(&|_| None).expect("the table's defaults are values that its knobs take")
    }
}

/// Finds the knob of that name.
pub fn find(name: &str) -> Option<&'static Knob> {
    KNOBS.iter().find(|knob| knob.name == name)
}

/// The names among `names` that are probably meant for Ronde and that it does not know, each with the nearest name that it
/// does: any `RONDE_*` name, a `HOROVOD_*` or `BYTEPS_TRACE_*` name that resembles one read here, and
/// such a name with a misspelt prefix. Other software has `HOROVOD_*` names of its own, so other names
/// give no warning.
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
    // With each, the number of edits after which a word no longer counts as that prefix.
    const PREFIXES: [(&str, usize); 2] = [("HOROVOD", 2), ("RONDE", 1)];
    let Some((found, _)) = env.split_once('_') else {
        return false;
    };
    PREFIXES.iter().any(|(prefix, distance_max)| {
        found.len().abs_diff(prefix.len()) <= *distance_max
            && strsim::osa_distance(prefix, found) <= *distance_max
    })
}

/// The variable read here that is most similar to `env`, if the similarity is at least
/// `similarity_min`. `HOROVOD_` and `RONDE_` count as equal, for the prefix is easily mixed up.
fn nearest_variable(env: &str, similarity_min: f64) -> Option<&'static str> {
    let stem = |name: &str| name.split_once('_').map_or(name, |(_, stem)| stem).to_owned();
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
