//! Command lines: preprocessing of the arguments for clap, and quoting for a shell. Preprocessing
//! rewrites Horovod's single-dash flags (`-np 4`) and separates the command of `ronde run` from the
//! options.
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

/// Quotes the command line so that it can be pasted into a shell. Lists and assignments stay as
/// they are, since no shell changes them after the first word.
pub(crate) fn quoted(line: &[OsString]) -> String {
    let words = line.iter().map(|word| word.to_string_lossy());
    let quoted = words.map(|word| {
        let is_plain =
            |symbol: char| symbol.is_ascii_alphanumeric() || "-_=,./:+@%".contains(symbol);
        if !word.is_empty() && word.chars().all(is_plain) {
            return word.into_owned();
        }
        shlex::try_quote(&word).map_or_else(|_| word.to_string(), |word| word.into_owned())
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// Rewrites the arguments of a subcommand: replaces single-dash flags by double-dash flags, and
/// inserts `--` before the command if the subcommand takes one and the user gave no `--`.
pub(super) fn rewrite(mut argv: Vec<OsString>, command: &mut clap::Command) -> Vec<OsString> {
    command.build();
    let name = argv.get(1).and_then(|name| name.to_str());
    let Some(subcommand) = name.and_then(|name| command.find_subcommand(name)) else {
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
        let long = SINGLE_DASH.iter().find(|(single, _)| *single == name);
        let long = long.map(|(_, double)| *double);
        let values = match value {
            Some(_) => 0,
            None => values_after(subcommand, long.unwrap_or(name)),
        };
        if value.is_none()
            && may_have_value(subcommand, name)
            && let Some(address) = argv.get(i + 1).and_then(address)
        {
            argv[i] = format!("{name}={address}").into();
            argv.remove(i + 1);
        } else if let Some(long) = long {
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
    option(command, name)
        .filter(|arg| arg.get_action().takes_values())
        .and_then(clap::Arg::get_num_args)
        .map_or(0, |range| range.min_values())
}

/// Whether the option `name` can be given with a value, after `=`, and without one.
fn may_have_value(command: &clap::Command, name: &str) -> bool {
    option(command, name).is_some_and(clap::Arg::is_require_equals_set)
}

/// Returns the argument if it can only be an address, `PORT` or `HOST:PORT`, and not a command.
fn address(argument: &OsString) -> Option<String> {
    let text = argument.to_str()?;
    let port = text.rsplit_once(':').map_or(text, |(_, port)| port);
    port.parse::<u16>().ok().map(|_| text.to_owned())
}

fn option<'a>(command: &'a clap::Command, name: &str) -> Option<&'a clap::Arg> {
    let is_named = |arg: &&clap::Arg| match name.strip_prefix("--") {
        Some(long) => {
            let aliases = arg.get_all_aliases().unwrap_or_default();
            arg.get_long() == Some(long) || aliases.contains(&long)
        }
        // `-H` takes the next argument; `-Hlocalhost:2` contains its value.
        None => arg
            .get_short()
            .is_some_and(|short| name == format!("-{short}")),
    };
    command.get_arguments().find(is_named)
}

#[cfg(test)]
mod tests {
    use super::super::Cli;
    use super::*;
    use clap::CommandFactory;

    fn rewritten(text: &str) -> String {
        let argv = text.split_whitespace().map(OsString::from).collect();
        let argv = rewrite(argv, &mut Cli::command());
        let words: Vec<&str> = argv.iter().map(|arg| arg.to_str().unwrap()).collect();
        words.join(" ")
    }

    #[test]
    fn flags_are_rewritten_before_the_command_only() {
        ronde_cases::check("command_lines.txt", rewritten);
    }
}
