//! Flags of horovodrun that this launcher does not support: rejected by name, with the reason.
//!
//! If they were ignored, a job other than the requested one would start.

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Command};

const JSRUN: &str =
    "jobs are not started through jsrun; have jsrun start `ronde bench` or your program itself";

/// Name, number of values and reason.
const REFUSED: &[(&str, usize, &str)] = &[("jsrun", 0, JSRUN)];

/// Names of the flags. A command line with one of them needs no command, so that the user sees the
/// reason instead of an error about the missing command.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    REFUSED.iter().map(|(name, _, _)| *name)
}

/// Arguments without a value: parsing fails if one of the flags is given.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refused;

impl clap::Args for Refused {
    fn augment_args(command: Command) -> Command {
        let arg = |&(name, values, _): &(&'static str, usize, &str)| {
            let arg = Arg::new(name).long(name).hide(true);
            if values == 0 {
                arg.action(ArgAction::SetTrue)
            } else {
                arg.num_args(values).allow_hyphen_values(true)
            }
        };
        command.args(REFUSED.iter().map(arg))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for Refused {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Refused, clap::Error> {
        let is_given = |(name, ..): &&(&str, usize, &str)| {
            matches.value_source(name) == Some(clap::parser::ValueSource::CommandLine)
        };
        match REFUSED.iter().find(is_given) {
            None => Ok(Refused),
            Some((name, _, reason)) => {
                let text = format!("--{name}: {reason}");
                Err(clap::Error::raw(ErrorKind::ArgumentConflict, text))
            }
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Refused::from_arg_matches(matches)?;
        Ok(())
    }
}
