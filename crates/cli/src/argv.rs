//! Preprocessing of the arguments for clap: rewrites Horovod's single-dash flags (`-np 4`) and
//! separates the command of `ronde run` from the options.
//!
//! Arguments are rewritten only up to `--` or the command, which belong to the user and are passed
//! on unchanged. To find the beginning of the command, the code has to know which options take
//! values; it reads this from clap's definition.

use std::ffi::{OsStr, OsString};

/// Horovod's multi-letter flags with a single dash, and their names in Ronde.
const SINGLE_DASH: &[(&str, &str)] = &[
    ("-np", "--num-proc"),
    ("-hostfile", "--hostfile"),
    ("-cb", "--check-build"),
    ("-prefix-timestamp", "--prefix-output-with-timestamp"),
];

/// Rewrites the arguments of a subcommand: replaces single-dash flags by double-dash flags, and
/// inserts `--` before the command if the subcommand takes one and the user gave no `--`.
pub(super) fn rewrite(mut argv: Vec<OsString>, command: &mut clap::Command) -> Vec<OsString> {
    command.build();
    let subcommand = argv
        .get(1)
        .and_then(|name| name.to_str())
        .and_then(|name| command.find_subcommand(name));
    let Some(subcommand) = subcommand else {
        return argv;
    };
    let takes_command = subcommand.get_positionals().any(|arg| arg.is_last_set());
    let mut i = 2;
    while i < argv.len() {
        let Some(text) = argv[i].to_str() else { break }; // options are ASCII
        if text == "--" {
            return argv;
        }
        if !text.starts_with('-') || text == "-" {
            break;
        }
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        let long = SINGLE_DASH
            .iter()
            .find(|(single, _)| *single == name)
            .map(|(_, double)| *double);
        let values = if value.is_some() {
            0
        } else {
            values_after(subcommand, long.unwrap_or(name))
        };
        if let Some(long) = long {
            argv[i] = value.map_or_else(|| long.into(), |value| format!("{long}={value}").into());
        }
        i += 1 + values;
    }
    if takes_command && i < argv.len() {
        argv.insert(i, OsStr::new("--").to_owned());
    }
    argv
}

/// Number of arguments after the option `name` that are its values; 0 for an unknown option, which
/// clap then reports.
fn values_after(command: &clap::Command, name: &str) -> usize {
    let arg = if let Some(long) = name.strip_prefix("--") {
        let matches = |arg: &&clap::Arg| {
            arg.get_long() == Some(long)
                || arg
                    .get_all_aliases()
                    .is_some_and(|aliases| aliases.contains(&long))
        };
        command.get_arguments().find(matches)
    } else {
        // `-H` takes the next argument; `-Hlocalhost:2` contains its value.
        let mut letters = name.chars().skip(1);
        let short = letters.next();
        if letters.next().is_some() {
            return 0;
        }
        command
            .get_arguments()
            .find(|arg| arg.get_short().is_some() && arg.get_short() == short)
    };
    arg.filter(|arg| arg.get_action().takes_values())
        .and_then(|arg| arg.get_num_args())
        .map_or(0, |range| range.min_values())
}

#[cfg(test)]
mod tests {
    use super::super::Cli;
    use super::*;
    use clap::CommandFactory;

    fn rewritten(text: &str) -> String {
        let argv = text.split_whitespace().map(OsString::from).collect();
        let argv = rewrite(argv, &mut Cli::command());
        argv.iter()
            .map(|arg| arg.to_str().unwrap())
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn flags_are_rewritten_before_the_command_only() {
        let table = [
            (
                "ronde run -np 2 -- a -np 3",
                "ronde run --num-proc 2 -- a -np 3",
            ),
            (
                "ronde run -np 2 a -np 3 -- -v",
                "ronde run --num-proc 2 -- a -np 3 -- -v",
            ),
            ("ronde run -np=2 a", "ronde run --num-proc=2 -- a"),
            (
                "ronde run -hostfile h -np 2 a",
                "ronde run --hostfile h --num-proc 2 -- a",
            ),
            (
                "ronde run -H localhost:2 -np 2 a",
                "ronde run -H localhost:2 --num-proc 2 -- a",
            ),
            (
                "ronde run -Hlocalhost:2 -np 2 a",
                "ronde run -Hlocalhost:2 --num-proc 2 -- a",
            ),
            (
                "ronde run -p 22 --verbose -np 2 a",
                "ronde run -p 22 --verbose --num-proc 2 -- a",
            ),
            (
                "ronde run --fusion-mb 4 -np 2 a",
                "ronde run --fusion-mb 4 --num-proc 2 -- a",
            ),
            (
                "ronde run --autotune -np 2 a -cb",
                "ronde run --autotune --num-proc 2 -- a -cb",
            ),
            (
                "ronde run -prefix-timestamp -np 1 a",
                "ronde run --prefix-output-with-timestamp --num-proc 1 -- a",
            ),
            (
                "ronde run --output-filename -np a",
                "ronde run --output-filename -np -- a",
            ),
            (
                "ronde run --unknown 4 -np 2",
                "ronde run --unknown -- 4 -np 2",
            ),
            ("ronde run -cb", "ronde run --check-build"),
            ("ronde run -np", "ronde run --num-proc"),
            ("ronde knobs --json", "ronde knobs --json"),
            ("ronde -np 2", "ronde -np 2"),
            ("ronde", "ronde"),
        ];
        for (before, after) in table {
            assert_eq!(rewritten(before), after);
        }
    }
}
