//! `ronde knobs`: prints the table of settings as text, JSON or Markdown, or the values in force.

use super::error::Error;
use super::present::Table;
use super::{fail, print};
use ronde::knobs::{Effective, FlagForm, IGNORED, KNOBS, Knob, KnobError, Knobs, Scope};
use serde_json::json;
use std::borrow::Cow;
use std::fmt::Write;
use std::process::ExitCode;

/// List every setting: environment variable, flag, range, default and meaning
#[derive(clap::Args)]
pub(super) struct Args {
    /// Show the values in force in this environment, and their sources
    #[arg(long)]
    effective: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print a Markdown table
    #[arg(long, conflicts_with_all = ["json", "effective"])]
    markdown: bool,
}

pub(super) fn main(args: &Args) -> Result<ExitCode, Error> {
    Ok(print(&match (args.json, args.markdown) {
        (as_json, _) if args.effective => effective(as_json)?,
        (true, _) => table_json(),
        (_, true) => table_markdown(),
        _ => table_text(),
    }))
}

fn effective(as_json: bool) -> Result<String, KnobError> {
    let knobs = Knobs::from_env()?;
    for warning in &knobs.warnings {
        fail(&format!("warning: {warning}"), 0);
    }
    let rows = knobs.effective(|name| std::env::var_os(name));
    let rows = rows.iter().map(|row| (row, row.value.to_string_lossy()));
    if as_json {
        let row = |(row, value): (&Effective, _)| {
            let source = if row.from_env {
                "environment"
            } else {
                "default"
            };
            json!({"name": row.name, "env": row.env, "value": value, "source": source})
        };
        return Ok(pretty(&rows.map(row).collect()));
    }
    let row = |(row, value): (&Effective, Cow<str>)| {
        let set_by = if row.from_env { row.env } else { "default" };
        [row.name.to_owned(), or_dash(&value), set_by.to_owned()]
    };
    Ok(lines("<knob; <value; <set by", rows.map(row)).join("\n") + "\n")
}

fn table_text() -> String {
    let row = |knob: &&Knob| {
        [
            knob.env.to_owned(),
            flag(knob),
            or_dash(knob.default),
            knob.kind.range(),
            knob.kind.unit().to_owned(),
            tunable(knob).to_owned(),
        ]
    };
    let is_here = |knob: &&Knob| !matches!(knob.scope, Scope::NotHere(_));
    let (here, elsewhere): (Vec<&Knob>, Vec<&Knob>) = KNOBS.iter().partition(is_here);
    let headings = "<variable; <flag; <default; <range; <unit; <tunable";
    let table = lines(headings, here.iter().map(row));
    let mut text = table[0].clone();
    for (line, knob) in table[1..].iter().zip(&here) {
        let _ = write!(text, "\n{line}\n    {}", knob.doc);
    }
    text.push_str("\n\nAccepted, without effect here:\n");
    let row = |knob: &&Knob| [format!("  {}", knob.env), reason(knob).to_owned()];
    text.push_str(&lines("<; <", elsewhere.iter().map(row)).join("\n"));
    for group in IGNORED {
        let _ = write!(text, "\n\nIgnored, {}:", group.reason);
        for names in group.names.chunks(3) {
            let _ = write!(text, "\n  {}", names.join(" "));
        }
    }
    text + "\n"
}

fn table_markdown() -> String {
    let mut text = String::from(
        "| variable | flag | default | values | tunable | meaning |\n|---|---|---|---|---|---|\n",
    );
    for knob in KNOBS {
        let meaning = match reason(knob) {
            "" => knob.doc.to_owned(),
            reason => format!("{} Without effect here: {reason}.", knob.doc),
        };
        let values = format!("{} {}", knob.kind.range(), knob.kind.unit()).replace('|', "\\|");
        let (env, flag, default) = (knob.env, flag(knob), or_dash(knob.default));
        let (values, tunable) = (values.trim(), tunable(knob));
        let _ = writeln!(
            text,
            "| `{env}` | {flag} | {default} | {values} | {tunable} | {meaning} |"
        );
    }
    for group in IGNORED {
        let names: Vec<String> = group.names.iter().map(|name| format!("`{name}`")).collect();
        let _ = writeln!(text, "\nIgnored, {}: {}.", group.reason, names.join(", "));
    }
    text
}

fn table_json() -> String {
    let row = |knob: &Knob| {
        json!({
            "name": knob.name,
            "env": knob.env,
            "flag": knob.flag.map(|flag| format!("--{}", flag.long)),
            "flag_aliases": knob.flag.map_or(&[][..], |flag| flag.aliases),
            "default": (!knob.default.is_empty()).then_some(knob.default),
            "range": knob.kind.range(),
            "unit": knob.kind.unit(),
            "tunable": knob.tunable,
            "scope": match knob.scope {
                Scope::Runtime => "runtime",
                Scope::Launcher => "launcher",
                Scope::Identity => "identity",
                Scope::NotHere(_) => "not here",
            },
            "reason": reason(knob),
            "doc": knob.doc,
        })
    };
    let ignored = |env: &str, reason: &str| {
        let name = env.trim_start_matches("HOROVOD_").to_ascii_lowercase();
        json!({"name": name, "env": env, "scope": "ignored", "reason": reason})
    };
    let ignored = IGNORED
        .iter()
        .flat_map(|group| group.names.iter().map(|env| ignored(env, group.reason)));
    pretty(&KNOBS.iter().map(row).chain(ignored).collect())
}

fn pretty(value: &serde_json::Value) -> String {
    format!("{value:#}\n")
}

fn flag(knob: &Knob) -> String {
    let Some(flag) = knob.flag else {
        return "-".into();
    };
    match flag.form {
        FlagForm::Switch { off, .. } if off.strip_prefix("no-") == Some(flag.long) => {
            format!("--[no-]{}", flag.long)
        }
        FlagForm::OptionalValue(_) => format!("--{}[=…]", flag.long),
        _ => format!("--{}", flag.long),
    }
}

fn tunable(knob: &Knob) -> &'static str {
    if knob.tunable { "yes" } else { "" }
}

fn or_dash(text: &str) -> String {
    if text.is_empty() { "-" } else { text }.to_owned()
}

fn reason(knob: &Knob) -> &'static str {
    match knob.scope {
        Scope::NotHere(reason) => reason,
        _ => "",
    }
}

/// Table in full width, whatever the width of the terminal, because it is searched with grep.
fn lines<const N: usize>(headings: &str, rows: impl Iterator<Item = [String; N]>) -> Vec<String> {
    let mut table = Table::headed(headings).indented(0);
    rows.for_each(|row| table.row(row));
    table.lines(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_knob_is_in_every_form() {
        let json: serde_json::Value = serde_json::from_str(&table_json()).unwrap();
        let ignored = IGNORED.iter().flat_map(|group| group.names.iter().copied());
        let names: Vec<&str> = KNOBS.iter().map(|knob| knob.env).chain(ignored).collect();
        assert_eq!(json.as_array().unwrap().len(), names.len());
        for text in [table_text(), table_markdown(), table_json()] {
            let is_part = |c: char| c == '_' || c.is_ascii_alphanumeric();
            let words: Vec<&str> = text.split(|c| !is_part(c)).collect();
            for name in &names {
                assert!(words.contains(name), "{name} is not in: {text}");
            }
        }
    }
}
