//! `ronde man`: manual pages, generated from the definitions of the command line and of the
//! settings.
//!
//! ronde(1) lists the settings as environment variables. Each subcommand has its own page, with its
//! options.

use super::error::Error;
use super::present::output::save;
use super::print;
use clap::ValueHint;
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};
use ronde::knobs::{IGNORED, KNOBS, Knob, Scope};
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

/// Print the manual page ronde(1), or write it and those of the subcommands to a directory
#[derive(clap::Args)]
pub(super) struct Args {
    /// Write ronde.1, ronde-run.1 and so on to this directory
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    dir: Option<PathBuf>,
}

/// Exit codes of all subcommands but `run`, which documents its own, and of the page about all.
const EXIT_STATUS: [(&str, &str); 4] = [
    ("0", "All went well."),
    ("1", "It failed; standard error has the reason."),
    (
        "2",
        "Wrong usage: an invalid flag, setting or configuration file.",
    ),
    (
        "other",
        "Of ronde run: the code of the rank that failed first, 128 + n if signal n killed it, 127 \
         if the command does not exist.",
    ),
];

pub(super) fn main(args: &Args, command: clap::Command) -> Result<ExitCode, Error> {
    let pages = pages(command);
    let Some(path) = &args.dir else {
        return Ok(print(&pages[0].1));
    };
    std::fs::create_dir_all(path).map_err(|source| Error::Folder {
        path: path.clone(),
        source,
    })?;
    for (name, page) in &pages {
        save(&path.join(name), page)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// All pages with their file names; the first is the page of `ronde` itself.
fn pages(command: clap::Command) -> Vec<(String, String)> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let is_shown = |inner: &&clap::Command| !inner.is_hide_set();
    let inner: Vec<&clap::Command> = command.get_subcommands().filter(is_shown).collect();
    let names: Vec<String> = inner
        .iter()
        .map(|one| format!("{}(1)", name(one)))
        .collect();
    let main = page(&command, environment, &names.join(", "));
    let refer = |roff: &mut Roff| {
        let text = "The variables that hold the settings are listed in ronde(1).";
        section(roff, "ENVIRONMENT", text);
    };
    let inner = inner.into_iter().map(|one| page(one, refer, "ronde(1)"));
    std::iter::once(main).chain(inner).collect()
}

/// Renders a page with its file name: the parts that clap generates, then the others.
fn page(
    command: &clap::Command,
    environment: impl FnOnce(&mut Roff),
    see_also: &str,
) -> (String, String) {
    let generated = generated(command).expect("writing to memory does not fail");
    let mut roff = Roff::new();
    environment(&mut roff);
    let help = command.get_after_help().map(ToString::to_string);
    let help = help.unwrap_or_default();
    if !help.contains(EXIT_CODE) {
        roff.control("SH", ["EXIT STATUS"]);
        let codes = if command.has_subcommands() { 4 } else { 3 };
        for (code, meaning) in &EXIT_STATUS[..codes] {
            tagged(&mut roff, vec![bold(*code)], meaning);
        }
    }
    help_sections(&mut roff, &help);
    section(&mut roff, "SEE ALSO", see_also);
    let text = String::from_utf8_lossy(&generated).into_owned() + &roff.render();
    (format!("{}.1", name(command)), text)
}

/// The parts of a page that clap generates.
fn generated(command: &clap::Command) -> io::Result<Vec<u8>> {
    let man = Man::new(command.clone())
        .title(name(command).to_uppercase())
        .source(format!("Ronde {}", env!("CARGO_PKG_VERSION")))
        .manual("User Commands");
    let mut bytes = Vec::new();
    man.render_title(&mut bytes)?;
    man.render_name_section(&mut bytes)?;
    man.render_synopsis_section(&mut bytes)?;
    man.render_description_section(&mut bytes)?;
    man.render_options_section(&mut bytes)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut bytes)?;
    }
    Ok(bytes)
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

/// Adds a paragraph with a hanging tag.
fn tagged(roff: &mut Roff, tag: Vec<Inline>, text: &str) {
    roff.control("TP", []).text(tag).text([roman(text)]);
}

fn environment(roff: &mut Roff) {
    section(
        roff,
        "ENVIRONMENT",
        "Every setting is an environment variable, which flags and a configuration file write. An \
         empty variable counts as unset. An invalid value is an error.",
    );
    let is_here = |knob: &&Knob| !matches!(knob.scope, Scope::NotHere(_));
    for knob in KNOBS.iter().filter(is_here) {
        let default = match knob.default {
            "" => String::new(),
            default => format!(" Default {default}."),
        };
        tagged(roff, variable(knob), &format!("{}{default}", knob.doc));
    }
    roff.control("SS", ["Accepted, without effect"]);
    for knob in KNOBS {
        if let Scope::NotHere(reason) = knob.scope {
            let text = format!("{} Without effect: {reason}.", knob.doc);
            tagged(roff, vec![bold(knob.env)], &text);
        }
    }
    for group in IGNORED {
        let heading = format!("Ignored, {}", group.reason);
        roff.control("SS", [heading.as_str()]);
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

/// Beginning of the paragraph about exit codes in a command's closing help.
const EXIT_CODE: &str = "Exit code: ";

/// Beginning of the paragraph of examples in a command's closing help.
const EXAMPLES: &str = "Examples:\n";

/// Adds the paragraphs of a command's closing help, each under its own heading; examples keep their
/// line breaks.
fn help_sections(roff: &mut Roff, help: &str) {
    for paragraph in help.split("\n\n").filter(|text| !text.is_empty()) {
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
        for name in ["-run", "-bench", "-knobs", "-completions", "-man"] {
            let file = format!("ronde{name}.1");
            assert!(pages.iter().any(|(name, _)| *name == file), "{file}");
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
                let headings = page.matches(&format!(".SH {heading}\n")).count();
                assert_eq!(headings, 1, "{name}: {heading}");
            }
        }
        let (_, run) = pages
            .iter()
            .find(|(name, _)| name == "ronde-run.1")
            .unwrap();
        for (heading, part) in [
            ("EXAMPLES", "python train.py"),
            ("\"EXIT STATUS\"", "127"),
            ("SETTINGS", "HOROVOD_FUSION_THRESHOLD"),
        ] {
            assert!(under(run, heading).contains(part), "{run}");
        }
    }

    #[test]
    fn the_page_of_ronde_has_every_variable() {
        let (name, page) = &pages(Cli::command())[0];
        assert_eq!(name, "ronde.1");
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
}
