//! Command-line flags of the knobs, generated from the table of [`knobs`](ronde::knobs).
//!
//! A subcommand adds all flags, and `--config-file`, with `#[command(flatten)] flags: KnobFlags`;
//! one with its own flags for some of the knobs uses `KnobFlags<NotSwept>`. A flag that is not
//! given sets nothing, so the caller's environment stays in force. A flag that is given wins over
//! the file, whatever their order, and the file wins over the environment.

use super::config_file::ConfigFile;
use super::config_file::value::{expected, is_valid};
use clap::builder::{OsStringValueParser, PossibleValuesParser, TypedValueParser, ValueParser};
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint};
use ronde::knobs::{FlagForm, KNOBS, Kind, Knob, KnobError, Knobs, Scope};
use std::ffi::{OsStr, OsString};
use std::marker::PhantomData;

/// Identifier of `--config-file`.
const CONFIG_FILE: &str = "config_file";

/// Selection of the knobs that have flags.
pub trait Selection {
    /// Whether `knob` has a flag.
    fn has(knob: &Knob) -> bool;
}

/// Selects every knob.
#[derive(Clone, Copy, Debug, Default)]
pub struct All;

/// Selects all knobs except those that a sweep varies, which have flags of their own that take
/// lists.
#[derive(Clone, Copy, Debug, Default)]
pub struct NotSwept;

impl Selection for All {
    fn has(_: &Knob) -> bool {
        true
    }
}

impl NotSwept {
    /// Environment variables of the knobs that a sweep varies.
    pub const VARIABLES: [&str; 3] = [
        "HOROVOD_FUSION_THRESHOLD",
        "HOROVOD_CYCLE_TIME",
        "HOROVOD_HIERARCHICAL_ALLREDUCE",
    ];
}

impl Selection for NotSwept {
    fn has(knob: &Knob) -> bool {
        !Self::VARIABLES.contains(&knob.env)
    }
}

/// Settings from flags and from a file, as values of environment variables.
#[derive(Clone, Debug, Default)]
pub struct KnobFlags<S = All> {
    settings: Vec<(&'static Knob, OsString)>,
    selection: PhantomData<S>,
}

impl<S> KnobFlags<S> {
    /// Environment variables that the flags and the file set, with their values.
    pub fn settings(&self) -> impl Iterator<Item = (&'static str, &OsStr)> {
        self.settings
            .iter()
            .map(|(knob, value)| (knob.env, value.as_os_str()))
    }

    /// Value of a variable: from the flag, else from the file, else from this process's
    /// environment.
    pub fn lookup(&self, env: &str) -> Option<OsString> {
        let flag = self.settings.iter().find(|(knob, _)| knob.env == env);
        flag.map(|(_, value)| value.clone())
            .or_else(|| std::env::var_os(env))
    }

    /// Reads the knobs as a process with these flags will read them, and adds the warnings about
    /// this process's environment.
    ///
    /// # Errors
    /// As [`Knobs::from_lookup`].
    pub fn knobs(&self) -> Result<Knobs, KnobError> {
        let mut knobs = Knobs::from_lookup(|env| self.lookup(env))?;
        knobs.warn_of_unknown_variables();
        Ok(knobs)
    }
}

impl<S: Selection> clap::Args for KnobFlags<S> {
    fn augment_args(command: Command) -> Command {
        let file = Arg::new(CONFIG_FILE)
            .long("config-file")
            .value_name("FILE")
            .help_heading(HEADING)
            .help("Read settings from this YAML file, horovodrun's; flags win over it, and it wins over the environment")
            .value_hint(ValueHint::FilePath)
            .value_parser(OsStringValueParser::new().try_map(ConfigFile::read));
        let command = command.arg(file);
        selected::<S>().fold(command, |command, knob| command.args(arguments(knob)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<S: Selection> clap::FromArgMatches for KnobFlags<S> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Self {
            settings: Vec::new(),
            selection: PhantomData,
        };
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for knob in selected::<S>() {
            if let Some(value) = written(knob, matches)? {
                self.settings.push((knob, value));
            }
        }
        if let Some(file) = matches.get_one::<ConfigFile>(CONFIG_FILE) {
            for (knob, value) in file.settings() {
                if self.settings.iter().all(|(given, _)| given.env != knob.env) {
                    self.settings.push((knob, value.to_owned()));
                }
            }
        }
        Ok(())
    }
}

/// Knobs that have flags.
fn selected<S: Selection>() -> impl Iterator<Item = &'static Knob> {
    KNOBS.iter().filter(|knob| S::has(knob))
}

/// Heading of the settings in `--help`.
const HEADING: &str = "Settings";

/// Identifier of the flag that switches a knob off.
fn off_id(knob: &Knob) -> String {
    format!("no-{}", knob.name)
}

/// Flags of one knob: none, one with a value, or a pair of switches.
fn arguments(knob: &'static Knob) -> Vec<Arg> {
    let Some(flag) = knob.flag else {
        return Vec::new();
    };
    let not_here = matches!(knob.scope, Scope::NotHere(_));
    let base = |id: String| Arg::new(id).help_heading(HEADING).hide(not_here);
    let note = match knob.default {
        "" => format!("[env: {}]", knob.env),
        default => format!("[env: {}, default {default}]", knob.env),
    };
    let on = base(knob.name.to_owned())
        .long(flag.long)
        .aliases(flag.aliases.iter().copied());
    match flag.form {
        FlagForm::Value | FlagForm::Megabytes => {
            let name = match (flag.form, knob.kind) {
                (FlagForm::Megabytes, _) => "MIB",
                (_, Kind::Path | Kind::Timeline) => "FILE",
                (_, Kind::Folder) => "FOLDER",
                _ => "VALUE",
            };
            let help = format!("{} {note}", knob.doc);
            // Accepted here, so that the error names the range and not an unknown flag.
            let on = on
                .value_name(name)
                .allow_negative_numbers(true)
                .value_parser(value_parser(knob.kind))
                .value_hint(match knob.kind {
                    Kind::Path | Kind::Timeline => ValueHint::FilePath,
                    Kind::Folder => ValueHint::DirPath,
                    _ => ValueHint::Other,
                })
                .ignore_case(true);
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
            vec![
                on.action(ArgAction::SetTrue),
                opposite.action(ArgAction::SetTrue),
            ]
        }
    }
}

/// Parser of a flag's value. It accepts any text, because [`written`] checks the value as the
/// variable's; a list of words is checked here too, so that shells can complete it.
fn value_parser(kind: Kind) -> ValueParser {
    match kind {
        Kind::Choice(words) => PossibleValuesParser::new(words).map(OsString::from).into(),
        _ => OsStringValueParser::new().into(),
    }
}

/// Value for a knob's variable from the flags, or `None` without a flag.
fn written(knob: &'static Knob, matches: &ArgMatches) -> Result<Option<OsString>, clap::Error> {
    let Some(flag) = knob.flag else {
        return Ok(None);
    };
    let given = || matches.get_one::<OsString>(knob.name);
    let checked = |text: &OsString, value: Option<OsString>| {
        value.filter(|value| is_valid(knob, value)).ok_or_else(|| {
            let message = format!(
                "invalid value '{}' for '--{}': expected {}",
                text.to_string_lossy(),
                flag.long,
                expected(knob, Some(flag.form))
            );
            clap::Error::raw(ErrorKind::ValueValidation, message)
        })
    };
    match flag.form {
        FlagForm::Value => given()
            .map(|text| checked(text, Some(text.clone())))
            .transpose(),
        FlagForm::Megabytes => given()
            .map(|text| checked(text, bytes(text).map(|bytes| bytes.to_string().into())))
            .transpose(),
        FlagForm::Switch { .. } if matches.get_flag(knob.name) => Ok(Some("1".into())),
        FlagForm::Switch { .. } if matches.get_flag(&off_id(knob)) => Ok(Some("0".into())),
        FlagForm::Switch { .. } => Ok(None),
    }
}

/// Converts MiB to bytes. The knob's range is checked where the variable is read.
pub(super) fn bytes(mib: &OsStr) -> Option<u64> {
    let mib: f64 = mib.to_str()?.trim().parse().ok()?;
    let bytes = (mib * 1_048_576.0).round();
    (0.0..1e18).contains(&bytes).then_some(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args, FromArgMatches};

    fn settings(text: &str) -> Result<String, clap::Error> {
        let command = KnobFlags::<All>::augment_args(Command::new("test"));
        let matches = command.try_get_matches_from(format!("test {text}").split_whitespace())?;
        let flags = KnobFlags::<All>::from_arg_matches(&matches)?;
        let show = |(env, value): (&str, &OsStr)| format!("{env}={}", value.to_str().unwrap());
        Ok(flags.settings().map(show).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn flags_write_horovods_variables() {
        let table = [
            ("", ""),
            (
                "--fusion-threshold-mb 64",
                "HOROVOD_FUSION_THRESHOLD=67108864",
            ),
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
            (
                "--no-hierarchical-allreduce",
                "HOROVOD_HIERARCHICAL_ALLREDUCE=0",
            ),
        ];
        for (flags, expected) in table {
            assert_eq!(settings(flags).unwrap(), expected, "{flags}");
        }
    }

    #[test]
    fn flags_win_over_the_file_wherever_they_stand() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text =
            "params:\n  cycle_time_ms: 3\n  fusion_threshold_mb: 2\nautotune:\n  enabled: true\n";
        std::fs::write(file.path(), text).unwrap();
        let path = file.path().display();
        let table = [
            (
                format!("--config-file {path}"),
                "HOROVOD_CYCLE_TIME=3 HOROVOD_FUSION_THRESHOLD=2097152 HOROVOD_AUTOTUNE=1",
            ),
            (
                format!("--cycle-time-ms 9 --config-file {path} --no-autotune"),
                "HOROVOD_CYCLE_TIME=9 HOROVOD_AUTOTUNE=0 HOROVOD_FUSION_THRESHOLD=2097152",
            ),
        ];
        for (flags, expected) in table {
            assert_eq!(settings(&flags).unwrap(), expected, "{flags}");
        }
    }

    #[test]
    fn flags_of_what_is_swept_can_be_left_out() {
        let command = KnobFlags::<NotSwept>::augment_args(Command::new("test"));
        for gone in [
            "fusion-threshold-mb",
            "cycle-time-ms",
            "hierarchical-allreduce",
        ] {
            assert!(
                command
                    .get_arguments()
                    .all(|arg| arg.get_long() != Some(gone)),
                "{gone}"
            );
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "params:\n  cycle_time_ms: 3\n").unwrap();
        let path = file.path().to_str().unwrap();
        let matches =
            command.try_get_matches_from(["test", "--link", "1000,2.5", "--config-file", path]);
        let flags = KnobFlags::<NotSwept>::from_arg_matches(&matches.unwrap()).unwrap();
        assert_eq!(flags.lookup("RONDE_LINK").unwrap(), "1000,2.5");
        // `lookup` also returns the file's value of a swept knob, so that a caller can warn that it
        // has no effect.
        assert_eq!(flags.lookup("HOROVOD_CYCLE_TIME").unwrap(), "3");
    }

    #[test]
    fn a_list_of_words_is_completed_and_checked() {
        assert_eq!(
            settings("--log-level DEBUG").unwrap(),
            "HOROVOD_LOG_LEVEL=DEBUG"
        );
        let error = settings("--log-level loud").unwrap_err().to_string();
        assert!(error.contains("trace, debug, info"), "{error}");
    }

    #[test]
    fn an_invalid_value_is_refused_by_the_name_of_its_flag() {
        let table = [
            (
                "--cycle-time-ms",
                "fast",
                "expected a number from 0 to 60000 (ms)",
            ),
            (
                "--cycle-time-ms",
                "-3",
                "expected a number from 0 to 60000 (ms)",
            ),
            ("--cache-capacity", "1.5", "expected an integer from 0 to"),
            (
                "--fusion-threshold-mb",
                "-3",
                "expected a number from 0 to 1048576 (MiB)",
            ),
            ("--timeline-steps", "9..1", "expected"),
        ];
        for (flag, value, part) in table {
            let error = settings(&format!("{flag} {value}"))
                .unwrap_err()
                .to_string();
            let start = format!("error: invalid value '{value}' for '{flag}': ");
            assert!(error.starts_with(&start) && error.contains(part), "{error}");
            assert!(
                !error.contains("HOROVOD_") && !error.contains("unset"),
                "{error}"
            );
        }
    }

    #[test]
    fn sizes_that_are_none_are_refused() {
        for text in ["many", "-1", "nan", "inf"] {
            let error = settings(&format!("--fusion-mb {text}"))
                .unwrap_err()
                .to_string();
            assert!(
                error.contains("--fusion-threshold-mb") && error.contains(text),
                "{error}"
            );
        }
    }
}
