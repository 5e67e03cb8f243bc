//! The knobs' command-line flags, generated from the table of [`knobs`](crate::knobs).
//!
//! A subcommand takes them all with `#[command(flatten)] flags: KnobFlags`. A flag that is not given sets nothing, so the
//! caller's environment stays in force; one that is given wins over it.

use crate::knobs::{FlagForm, KNOBS, Knob, KnobError, Knobs, Scope};
use clap::builder::OsStringValueParser;
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Command};
use std::ffi::{OsStr, OsString};

/// The settings given by flags, as what they write into the environment.
#[derive(Clone, Debug, Default)]
pub struct KnobFlags {
    settings: Vec<(&'static Knob, OsString)>,
}

impl KnobFlags {
    /// The environment variables that the flags write, with their values.
    pub fn settings(&self) -> impl Iterator<Item = (&'static str, &OsStr)> {
        self.settings
            .iter()
            .map(|(knob, value)| (knob.env, value.as_os_str()))
    }

    /// A variable's value after the flags: what a flag writes, else what the process's environment holds.
    pub fn lookup(&self, env: &str) -> Option<OsString> {
        let flag = self.settings.iter().find(|(knob, _)| knob.env == env);
        flag.map(|(_, value)| value.clone())
            .or_else(|| std::env::var_os(env))
    }

    /// Reads the knobs as a process started with these flags will.
    ///
    /// # Errors
    /// As [`Knobs::from_lookup`].
    pub fn knobs(&self) -> Result<Knobs, KnobError> {
        Knobs::from_lookup(|env| self.lookup(env))
    }
}

impl clap::Args for KnobFlags {
    fn augment_args(command: Command) -> Command {
        KNOBS
            .iter()
            .fold(command, |command, knob| command.args(arguments(knob)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for KnobFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<KnobFlags, clap::Error> {
        let mut flags = KnobFlags::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for knob in KNOBS {
            if let Some(value) = written(knob, matches)? {
                self.settings.push((knob, value));
            }
        }
        Ok(())
    }
}

/// Identifier of the flag that switches a knob off.
fn off_id(knob: &Knob) -> String {
    format!("no-{}", knob.name)
}

/// The flags of one knob: none, one that takes a value, or a pair.
fn arguments(knob: &'static Knob) -> Vec<Arg> {
    let Some(flag) = knob.flag else { return Vec::new() };
    let not_here = matches!(knob.scope, Scope::NotHere(_));
    let base = |id: String| Arg::new(id).help_heading("Settings").hide(not_here);
    let note = match knob.default {
        "" => format!("[env: {}]", knob.env),
        default => format!("[env: {}, default {default}]", knob.env),
    };
    let on = base(knob.name.to_owned())
        .long(flag.long)
        .aliases(flag.aliases.iter().copied());
    match flag.form {
        FlagForm::Value | FlagForm::Megabytes => {
            let name = if flag.form == FlagForm::Megabytes {
                "MIB"
            } else {
                "VALUE"
            };
            let help = format!("{} {note}", knob.doc);
            // Negative numbers are wrong, but should be called so rather than taken for flags.
            let on = on
                .value_name(name)
                .allow_negative_numbers(true)
                .value_parser(OsStringValueParser::new());
            vec![on.help(help)]
        }
        FlagForm::Switch { off, off_aliases } => {
            let help = format!("{} Opposite: --{off} {note}", knob.doc);
            let opposite = base(off_id(knob))
                .long(off)
                .aliases(off_aliases.iter().copied())
                .hide(true);
            let (on, opposite) = (
                on.overrides_with(off_id(knob)).help(help),
                opposite.overrides_with(knob.name),
            );
            vec![on.action(ArgAction::SetTrue), opposite.action(ArgAction::SetTrue)]
        }
    }
}

/// What the flags given write into a knob's variable, if any was given.
fn written(knob: &'static Knob, matches: &ArgMatches) -> Result<Option<OsString>, clap::Error> {
    let Some(flag) = knob.flag else { return Ok(None) };
    match flag.form {
        FlagForm::Value => Ok(matches.get_one::<OsString>(knob.name).cloned()),
        FlagForm::Megabytes => match matches.get_one::<OsString>(knob.name) {
            None => Ok(None),
            Some(text) => match bytes(text) {
                Some(bytes) => Ok(Some(bytes.to_string().into())),
                None => {
                    let message = format!(
                        "--{} {} is not a number of MiB; write for example 64",
                        flag.long,
                        text.to_string_lossy()
                    );
                    Err(clap::Error::raw(ErrorKind::ValueValidation, message))
                }
            },
        },
        FlagForm::Switch { .. } if matches.get_flag(knob.name) => Ok(Some("1".into())),
        FlagForm::Switch { .. } if matches.get_flag(&off_id(knob)) => Ok(Some("0".into())),
        FlagForm::Switch { .. } => Ok(None),
    }
}

/// MiB as bytes. The knob's own range is checked where the variable is read.
fn bytes(mib: &OsStr) -> Option<u64> {
    let mib: f64 = mib.to_str()?.trim().parse().ok()?;
    let bytes = (mib * 1_048_576.0).round();
    (0.0..1e18).contains(&bytes).then_some(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args, FromArgMatches};

    fn settings(text: &str) -> Result<String, clap::Error> {
        let command = KnobFlags::augment_args(Command::new("test"));
        let matches = command.try_get_matches_from(format!("test {text}").split_whitespace())?;
        let flags = KnobFlags::from_arg_matches(&matches)?;
        let show = |(env, value): (&str, &OsStr)| format!("{env}={}", value.to_str().unwrap());
        Ok(flags.settings().map(show).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn flags_write_horovods_variables() {
        let table = [
            ("", ""),
            ("--fusion-threshold-mb 64", "HOROVOD_FUSION_THRESHOLD=67108864"),
            (
                "--fusion-mb 0.5 --cycle-ms 2.5",
                "HOROVOD_FUSION_THRESHOLD=524288 HOROVOD_CYCLE_TIME=2.5",
            ),
            ("--autotune", "HOROVOD_AUTOTUNE=1"),
            ("--autotune --no-autotune", "HOROVOD_AUTOTUNE=0"),
            ("--no-autotune --autotune", "HOROVOD_AUTOTUNE=1"),
            ("--no-stall-check", "HOROVOD_STALL_CHECK_DISABLE=1"),
            ("--stall-check", "HOROVOD_STALL_CHECK_DISABLE=0"),
            ("--log-hide-timestamp", "HOROVOD_LOG_HIDE_TIME=1"),
            ("--log-with-timestamp", "HOROVOD_LOG_HIDE_TIME=0"),
            ("--no-hierarchical-allreduce", "HOROVOD_HIERARCHICAL_ALLREDUCE=0"),
            ("--cycle-time-ms -3", "HOROVOD_CYCLE_TIME=-3"), // refused where it is read
        ];
        for (flags, expected) in table {
            assert_eq!(settings(flags).unwrap(), expected, "{flags}");
        }
    }

    #[test]
    fn sizes_that_are_none_are_refused() {
        for text in ["many", "-1", "nan", "inf"] {
            let error = settings(&format!("--fusion-mb {text}")).unwrap_err().to_string();
            assert!(
                error.contains("--fusion-threshold-mb") && error.contains(text),
                "{error}"
            );
        }
    }
}
