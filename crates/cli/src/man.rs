//! `ronde man`: manual pages, generated from the definitions of the command line and of the
//! settings.
//!
//! ronde(1) lists the settings as environment variables. Each subcommand has its own page, with its
//! options.

use super::present::output::{Output, OutputError};
use super::{fail, print};
use clap::ValueHint;
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};
use ronde::knobs::{IGNORED, KNOBS, Knob, Scope};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Print the manual page ronde(1), or write it and those of the subcommands to a directory
#[derive(clap::Args)]
pub(super) struct Args {
    /// Write ronde.1, ronde-run.1 and so on to this directory
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    dir: Option<PathBuf>,
}

/// Exit codes of all subcommands but `run`, which documents its own.
const EXIT_STATUS: &[(&str, &str)] = &[
    ("0", "All went well."),
    ("1", "It failed; standard error has the reason."),
    (
        "2",
        "Wrong usage: an invalid flag, setting or configuration file.",
    ),
];

/// Exit code that only `run` has, for the page about all subcommands.
const EXIT_STATUS_OF_RANKS: (&str, &str) = (
    "other",
    "Of ronde run: the code of the rank that failed first, 128 + n if signal n killed it, 127 if the command does not exist.",
);

pub(super) fn main(args: &Args, command: clap::Command) -> ExitCode {
    let pages = pages(command);
    let Some(dir) = &args.dir else {
        return print(&pages[0].1);
    };
    match write(dir, &pages) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(
            &format!("man: {error}; choose another --dir"),
            error.exit_code(),
        ),
    }
}

fn write(dir: &Path, pages: &[(String, String)]) -> Result<(), OutputError> {
    std::fs::create_dir_all(dir).map_err(|source| OutputError::Write {
        path: dir.to_owned(),
        source,
    })?;
    for (name, page) in pages {
        Output::open(&dir.join(name))?.finish(|sink| sink.write_all(page.as_bytes()))?;
    }
    Ok(())
}

/// All pages with their file names; the first is the page of `ronde` itself.
fn pages(command: clap::Command) -> Vec<(String, String)> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let subcommands: Vec<&clap::Command> = command
        .get_subcommands()
        .filter(|inner| !inner.is_hide_set())
        .collect();
    let names: Vec<String> = subcommands.iter().map(|inner| name(inner)).collect();
    let main = page(&command, |roff| {
        environment(roff);
        exit_status(roff, &[EXIT_STATUS, &[EXIT_STATUS_OF_RANKS]].concat());
        help_sections(roff, &command);
        let pages = names.iter().map(|name| format!("{name}(1)"));
        see_also(roff, &pages.collect::<Vec<_>>().join(", "));
    });
    let inner = |inner: &&clap::Command| {
        page(inner, |roff| {
            section(
                roff,
                "ENVIRONMENT",
                "The variables that hold the settings are listed in ronde(1).",
            );
            if !help(inner).contains(EXIT_CODE) {
                exit_status(roff, EXIT_STATUS);
            }
            help_sections(roff, inner);
            see_also(roff, "ronde(1)");
        })
    };
    std::iter::once(main)
        .chain(subcommands.iter().map(inner))
        .collect()
}

/// Renders a page: the parts that clap generates, then `rest`.
fn page(command: &clap::Command, rest: impl FnOnce(&mut Roff)) -> (String, String) {
    let source = format!("Ronde {}", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone())
        .title(name(command).to_uppercase())
        .source(source)
        .manual("User Commands");
    let mut bytes = Vec::new();
    let rendered = man
        .render_title(&mut bytes)
        .and_then(|()| man.render_name_section(&mut bytes))
        .and_then(|()| man.render_synopsis_section(&mut bytes))
        .and_then(|()| man.render_description_section(&mut bytes))
        .and_then(|()| man.render_options_section(&mut bytes));
    let rendered = if command.has_subcommands() {
        rendered.and_then(|()| man.render_subcommands_section(&mut bytes))
    } else {
        rendered
    };
    rendered.expect("writing to memory does not fail");
    let mut roff = Roff::new();
    rest(&mut roff);
    let text = String::from_utf8_lossy(&bytes).into_owned() + &roff.render();
    (format!("{}.1", name(command)), text)
}

/// Name of a subcommand's page, such as `ronde-run` for `ronde run`.
fn name(command: &clap::Command) -> String {
    command
        .get_display_name()
        .unwrap_or_else(|| command.get_name())
        .to_owned()
}

fn section(roff: &mut Roff, heading: &str, text: &str) {
    roff.control("SH", [heading]).text([roman(text)]);
}

fn see_also(roff: &mut Roff, pages: &str) {
    section(roff, "SEE ALSO", pages);
}

/// Adds a paragraph with a hanging tag.
fn tagged(roff: &mut Roff, tag: Vec<Inline>, text: &str) {
    roff.control("TP", []).text(tag).text([roman(text)]);
}

fn environment(roff: &mut Roff) {
    section(
        roff,
        "ENVIRONMENT",
        "Every setting is an environment variable, which flags and a configuration file write. An empty variable counts as \
         unset. An invalid value is an error.",
    );
    for knob in KNOBS
        .iter()
        .filter(|knob| !matches!(knob.scope, Scope::NotHere(_)))
    {
        let default = match knob.default {
            "" => String::new(),
            default => format!(" Default {default}."),
        };
        tagged(roff, variable(knob), &format!("{}{default}", knob.doc));
    }
    roff.control("SS", ["Accepted, without effect"]);
    for knob in KNOBS {
        if let Scope::NotHere(reason) = knob.scope {
            tagged(
                roff,
                vec![bold(knob.env)],
                &format!("{} Without effect: {reason}.", knob.doc),
            );
        }
    }
    for group in IGNORED {
        roff.control("SS", [format!("Ignored, {}", group.reason).as_str()]);
        roff.text([roman(group.names.join(" "))]);
    }
}

/// Tag of a setting: the variable's name, its values and its flag.
fn variable(knob: &Knob) -> Vec<Inline> {
    let values = format!("{} {}", knob.kind.range(), knob.kind.unit());
    let mut tag = vec![
        bold(knob.env),
        roman(" ("),
        italic(values.trim()),
        roman(")"),
    ];
    if let Some(flag) = knob.flag {
        tag.extend([roman(", "), bold(format!("--{}", flag.long))]);
    }
    tag
}

fn exit_status(roff: &mut Roff, codes: &[(&str, &str)]) {
    roff.control("SH", ["EXIT STATUS"]);
    for (code, meaning) in codes {
        tagged(roff, vec![bold(*code)], meaning);
    }
}

/// Beginning of the paragraph about exit codes in a command's closing help.
const EXIT_CODE: &str = "Exit code: ";

/// Beginning of the paragraph of examples in a command's closing help.
const EXAMPLES: &str = "Examples:\n";

fn help(command: &clap::Command) -> String {
    command
        .get_after_help()
        .map(|help| help.to_string())
        .unwrap_or_default()
}

/// Adds the paragraphs of a command's closing help, each under its own heading; examples keep their
/// line breaks.
fn help_sections(roff: &mut Roff, command: &clap::Command) {
    for paragraph in help(command)
        .split("\n\n")
        .filter(|paragraph| !paragraph.is_empty())
    {
        if let Some(codes) = paragraph.strip_prefix(EXIT_CODE) {
            section(roff, "EXIT STATUS", codes);
        } else if let Some(examples) = paragraph.strip_prefix(EXAMPLES) {
            roff.control("SH", ["EXAMPLES"]).control("nf", []);
            for line in examples.lines() {
                roff.text([roman(line)]);
            }
            roff.control("fi", []);
        } else {
            section(roff, "NOTES", paragraph);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Cli;
    use super::*;
    use clap::CommandFactory;

    /// Returns the text between a heading and the next.
    fn under<'a>(page: &'a str, heading: &str) -> &'a str {
        let (_, rest) = page
            .split_once(&format!(".SH {heading}\n"))
            .unwrap_or_else(|| panic!("no {heading} in {page}"));
        rest.split(".SH ").next().unwrap_or(rest)
    }

    #[test]
    fn each_subcommand_has_a_page_with_every_section() {
        let pages = pages(Cli::command());
        let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names[0], "ronde.1");
        for name in [
            "ronde-run.1",
            "ronde-bench.1",
            "ronde-knobs.1",
            "ronde-completions.1",
            "ronde-man.1",
        ] {
            assert!(names.contains(&name), "{names:?}");
        }
        for (name, page) in &pages {
            for heading in [
                "NAME",
                "SYNOPSIS",
                "DESCRIPTION",
                "OPTIONS",
                "ENVIRONMENT",
                "\"EXIT STATUS\"",
            ] {
                assert!(!under(page, heading).trim().is_empty(), "{name}: {heading}");
            }
            assert_eq!(page.matches(".SH \"EXIT STATUS\"").count(), 1, "{name}");
        }
    }

    #[test]
    fn the_page_of_ronde_has_every_variable() {
        let (_, page) = &pages(Cli::command())[0];
        let environment = under(page, "ENVIRONMENT");
        let ignored = IGNORED.iter().flat_map(|group| group.names.iter().copied());
        for env in KNOBS.iter().map(|knob| knob.env).chain(ignored) {
            assert!(environment.contains(env), "{env}");
        }
        assert!(
            under(page, "EXAMPLES").contains("ronde run \\-np 4"),
            "{page}"
        );
    }

    #[test]
    fn examples_and_exit_codes_of_a_subcommand_stand_under_headings() {
        let pages = pages(Cli::command());
        let (_, run) = pages
            .iter()
            .find(|(name, _)| name == "ronde-run.1")
            .unwrap();
        assert!(under(run, "EXAMPLES").contains("python train.py"), "{run}");
        assert!(under(run, "\"EXIT STATUS\"").contains("127"), "{run}");
        assert!(
            under(run, "SETTINGS").contains("HOROVOD_FUSION_THRESHOLD"),
            "{run}"
        );
    }
}
