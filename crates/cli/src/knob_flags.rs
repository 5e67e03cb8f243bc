//! Command-line flags of the knobs, generated from the table of [`knobs`](ronde::knobs).
//!
//! A subcommand adds all flags, and `--config-file`, with `#[command(flatten)] flags: KnobFlags`;
//! one that varies some of the knobs uses [`NotSwept`]. A flag that is not given sets nothing, so
//! the caller's environment stays in force. A flag that is given wins over the file, whatever their
//! order, and the file wins over the environment.

use super::config_file::ConfigFile;
use super::config_file::value::{expected, is_valid};
use clap::builder::{OsStringValueParser, PossibleValuesParser, TypedValueParser, ValueParser};
use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint};
use ronde::knobs::{FlagForm, KNOBS, Kind, Knob, KnobError, Knobs, Scope};
use std::ffi::{OsStr, OsString};

/// Identifier of `--config-file`.
const CONFIG_FILE: &str = "config_file";

/// Heading of the settings in `--help`.
const HEADING: &str = "Settings";

/// Settings from flags and from a file, as values of environment variables. If `SWEPT` is false,
/// the knobs that a sweep varies have no flags.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnobFlags<const SWEPT: bool = true> {
    settings: Vec<(&'static Knob, OsString)>,
}

/// Settings without flags for the knobs that a sweep varies, which has flags of its own that take
/// lists.
pub(crate) type NotSwept = KnobFlags<false>;

impl NotSwept {
    /// Environment variables of the knobs that a sweep varies.
    pub(crate) const VARIABLES: [&str; 3] = [
        "HOROVOD_FUSION_THRESHOLD",
        "HOROVOD_CYCLE_TIME",
        "HOROVOD_HIERARCHICAL_ALLREDUCE",
    ];
}

impl<const SWEPT: bool> KnobFlags<SWEPT> {
    /// Environment variables that the flags and the file set, with their values.
    pub(crate) fn settings(&self) -> impl Iterator<Item = (&'static str, &OsStr)> {
        let settings = self.settings.iter();
        settings.map(|(knob, value)| (knob.env, value.as_os_str()))
    }

    /// Value of a variable: from the flag, else from the file, else from this process's
    /// environment.
    pub(crate) fn lookup(&self, env: &str) -> Option<OsString> {
        let setting = self.settings.iter().find(|(knob, _)| knob.env == env);
        setting.map_or_else(|| std::env::var_os(env), |(_, value)| Some(value.clone()))
    }

    /// Reads the knobs as a process with these flags will read them, and adds the warnings about
    /// this process's environment.
    ///
    /// # Errors
    /// As [`Knobs::from_lookup`]. The values of flags were checked when they were parsed.
    pub(crate) fn knobs(&self) -> Result<Knobs, KnobError> {
        let mut knobs = Knobs::from_lookup(|env| self.lookup(env))?;
        knobs.warn_of_unknown_variables();
        Ok(knobs)
    }

    /// Knobs that have flags.
    fn knobs_with_flags() -> impl Iterator<Item = &'static Knob> {
        let is_selected = |knob: &&Knob| SWEPT || !NotSwept::VARIABLES.contains(&knob.env);
        KNOBS.iter().filter(is_selected)
    }
}

impl<const SWEPT: bool> clap::Args for KnobFlags<SWEPT> {
    fn augment_args(command: Command) -> Command {
        let file = Arg::new(CONFIG_FILE)
            .long("config-file")
            .value_name("FILE")
            .help_heading(HEADING)
            .help(
                "Read settings from this YAML file, horovodrun's; flags win over it, and it wins \
                 over the environment",
            )
            .value_hint(ValueHint::FilePath)
            .value_parser(OsStringValueParser::new().try_map(ConfigFile::read));
        command
            .arg(file)
            .args(Self::knobs_with_flags().flat_map(arguments))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<const SWEPT: bool> clap::FromArgMatches for KnobFlags<SWEPT> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let flags =
            Self::knobs_with_flags().filter_map(|knob| Some((knob, written(knob, matches)?)));
        let mut settings: Vec<(&'static Knob, OsString)> = flags.collect();
        if let Some(file) = matches.get_one::<ConfigFile>(CONFIG_FILE) {
            for (knob, value) in file.settings() {
                if settings.iter().all(|(given, _)| given.env != knob.env) {
                    settings.push((knob, value.to_owned()));
                }
            }
        }
        Ok(Self { settings })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Identifier of the flag that switches a knob off.
fn off_id(knob: &Knob) -> String {
    format!("no-{}", knob.name)
}

/// Flags of one knob: none, one with a value, or a pair of switches.
fn arguments(knob: &'static Knob) -> Vec<Arg> {
    let Some(flag) = knob.flag else {
        return Vec::new();
    };
    let is_hidden = matches!(knob.scope, Scope::NotHere(_));
    let base = |id: String| Arg::new(id).help_heading(HEADING).hide(is_hidden);
    let note = match knob.default {
        "" => format!("[env: {}]", knob.env),
        default => format!("[env: {}, default {default}]", knob.env),
    };
    let on = base(knob.name.to_owned())
        .long(flag.long)
        .aliases(flag.aliases.iter().copied());
    match flag.form {
        FlagForm::Value | FlagForm::Megabytes => {
            let (name, hint) = match (flag.form, knob.kind) {
                (FlagForm::Megabytes, _) => ("MIB", ValueHint::Other),
                (_, Kind::Path | Kind::Timeline) => ("FILE", ValueHint::FilePath),
                (_, Kind::Folder) => ("FOLDER", ValueHint::DirPath),
                _ => ("VALUE", ValueHint::Other),
            };
            let on = on
                .help(format!("{} {note}", knob.doc))
                .value_name(name)
                // Accepted here, so that the error names the range and not an unknown flag.
                .allow_negative_numbers(true)
                .value_hint(hint)
                .value_parser(value_parser(knob, flag.form))
                .ignore_case(true);
            vec![on]
        }
        FlagForm::OptionalValue(alone) => {
            // With `=`: a word after the flag may be the command of `ronde run`.
            let on = on
                .help(format!("{} Alone: {alone} {note}", knob.doc))
                .value_name("VALUE")
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value(alone)
                .value_hint(ValueHint::Other)
                .value_parser(value_parser(knob, flag.form));
            vec![on]
        }
        FlagForm::Switch { off, off_aliases } => {
            let on = on
                .help(format!("{} Opposite: --{off} {note}", knob.doc))
                .overrides_with(off_id(knob))
                .action(ArgAction::SetTrue);
            let opposite = base(off_id(knob))
                .long(off)
                .aliases(off_aliases.iter().copied())
                .hide(true)
                .overrides_with(knob.name)
                .action(ArgAction::SetTrue);
            vec![on, opposite]
        }
    }
}

/// Parser of a flag's value to the value of the knob's variable, so that an error names the flag.
/// The words of a list are known to it, so that shells can complete them.
fn value_parser(knob: &'static Knob, form: FlagForm) -> ValueParser {
    if let Kind::Choice(words) = knob.kind {
        return PossibleValuesParser::new(words).map(OsString::from).into();
    }
    let parse = move |text: OsString| {
        let value = match form {
            FlagForm::Megabytes => bytes(&text).map(|bytes| bytes.to_string().into()),
            _ => Some(text),
        };
        value
            .filter(|value| is_valid(knob, value))
            .ok_or_else(|| format!("expected {}", expected(knob, Some(form))))
    };
    OsStringValueParser::new().try_map(parse).into()
}

/// Value for a knob's variable from the flags, or `None` without a flag.
fn written(knob: &'static Knob, matches: &ArgMatches) -> Option<OsString> {
    match knob.flag?.form {
        FlagForm::Switch { .. } if matches.get_flag(knob.name) => Some("1".into()),
        FlagForm::Switch { .. } => matches.get_flag(&off_id(knob)).then(|| "0".into()),
        _ => matches.get_one::<OsString>(knob.name).cloned(),
    }
}

/// Converts MiB to bytes. The knob's range is checked by the knob's kind.
pub(super) fn bytes(mib: &OsStr) -> Option<u64> {
    let mib: f64 = mib.to_str()?.trim().parse().ok()?;
    let bytes = (mib * 1_048_576.0).round();
    (0.0..1e18).contains(&bytes).then_some(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Test<const SWEPT: bool> {
        #[command(flatten)]
        flags: KnobFlags<SWEPT>,
    }

    fn parsed<const SWEPT: bool>(text: &str) -> Result<KnobFlags<SWEPT>, String> {
        let words = ["test"].into_iter().chain(text.split_whitespace());
        let test = Test::try_parse_from(words).map_err(|error| error.to_string())?;
        Ok(test.flags)
    }

    fn settings(text: &str) -> String {
        let flags = parsed::<true>(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let show = |(env, value): (&str, &OsStr)| format!("{env}={}", value.to_str().unwrap());
        flags.settings().map(show).collect::<Vec<_>>().join(" ")
    }

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    #[test]
    fn flags_write_horovods_variables_and_win_over_the_file() {
        let file = file(
            "params:\n  cycle_time_ms: 3\n  fusion_threshold_mb: 2\nautotune:\n  enabled: true\n",
        );
        let path = file.path().display().to_string();
        ronde_cases::check("flags.txt", |flags| settings(&flags.replace("FILE", &path)));
    }

    #[test]
    fn flags_of_swept_knobs_can_be_left_out() {
        for flags in ["--fusion-mb 1", "--cycle-ms 1", "--hierarchical-allreduce"] {
            assert!(parsed::<false>(flags).is_err(), "{flags}");
        }
        let file = file("params:\n  cycle_time_ms: 3\n");
        let path = file.path().display();
        let flags = parsed::<false>(&format!("--link 1000,2.5 --config-file {path}")).unwrap();
        assert_eq!(flags.lookup("RONDE_LINK").unwrap(), "1000,2.5");
        // `lookup` also returns the file's value of a swept knob, so that a caller can warn that it
        // has no effect.
        assert_eq!(flags.lookup("HOROVOD_CYCLE_TIME").unwrap(), "3");
    }
}
