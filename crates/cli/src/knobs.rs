//! `ronde knobs`: prints the table of settings as text, JSON or Markdown, or the values in force.

use super::present::Table;
use super::{fail, print};
use ronde::knobs::{FlagForm, IGNORED, KNOBS, Knob, Knobs, Scope};
use serde_json::json;
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

pub(super) fn main(args: &Args) -> ExitCode {
    if args.effective {
        return effective(args.json);
    }
    print(&match (args.json, args.markdown) {
        (true, _) => table_json(),
        (_, true) => table_markdown(),
        _ => table_text(),
    })
}

fn effective(as_json: bool) -> ExitCode {
    let knobs = match Knobs::from_env() {
        Ok(knobs) => knobs,
        Err(error) => return fail(&error.to_string(), 1),
    };
    for warning in &knobs.warnings {
        fail(&format!("warning: {warning}"), 0);
    }
    let rows = knobs.effective(|name| std::env::var_os(name));
    if as_json {
        let row = |row: &ronde::knobs::Effective| {
            let source = if row.from_env {
                "environment"
            } else {
                "default"
            };
            json!({"name": row.name, "env": row.env, "value": row.value.to_string_lossy(), "source": source})
        };
        return print(&pretty(&rows.iter().map(row).collect()));
    }
    let row = |row: &ronde::knobs::Effective| {
        let value = if row.value.is_empty() {
            "-".into()
        } else {
            row.value.to_string_lossy().into_owned()
        };
        [
            row.name.to_owned(),
            value,
            if row.from_env {
                row.env.to_owned()
            } else {
                "default".to_owned()
            },
        ]
    };
    let rows = rows.iter().map(row);
    print(&(lines(&["<knob", "<value", "<set by"], rows).join("\n") + "\n"))
}

fn table_text() -> String {
    let row = |knob: &Knob| {
        let tunable = if knob.tunable { "yes" } else { "" };
        [
            knob.env.to_owned(),
            flag(knob),
            or_dash(knob.default),
            knob.kind.range(),
            knob.kind.unit().to_owned(),
            tunable.to_owned(),
        ]
    };
    let (here, elsewhere): (Vec<&Knob>, Vec<&Knob>) =
        KNOBS.iter().partition(|knob| !is_elsewhere(knob));
    let headings = [
        "<variable",
        "<flag",
        "<default",
        "<range",
        "<unit",
        "<tunable",
    ];
    let table = lines(&headings, here.iter().map(|knob| row(knob)));
    let mut text = table[0].clone();
    for (line, knob) in table[1..].iter().zip(&here) {
        let _ = write!(text, "\n{line}\n    {}", knob.doc);
    }
    text.push_str("\n\nAccepted, without effect here:\n");
    let row = |knob: &&Knob| [format!("  {}", knob.env), reason(knob).to_owned()];
    text.push_str(&lines(&["<", "<"], elsewhere.iter().map(row)).join("\n"));
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
        let tunable = if knob.tunable { "yes" } else { "" };
        let meaning = match reason(knob) {
            "" => knob.doc.to_owned(),
            reason => format!("{} Without effect here: {reason}.", knob.doc),
        };
        let values = format!("{} {}", knob.kind.range(), knob.kind.unit()).replace('|', "\\|");
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} | {tunable} | {meaning} |",
            knob.env,
            flag(knob),
            or_dash(knob.default),
            values.trim()
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
    match knob.flag {
        None => "-".into(),
        Some(flag) => match flag.form {
            FlagForm::Switch { off, .. } if off.strip_prefix("no-") == Some(flag.long) => {
                format!("--[no-]{}", flag.long)
            }
            _ => format!("--{}", flag.long),
        },
    }
}

fn or_dash(text: &str) -> String {
    if text.is_empty() {
        "-".into()
    } else {
        text.into()
    }
}

fn is_elsewhere(knob: &Knob) -> bool {
    matches!(knob.scope, Scope::NotHere(_))
}

fn reason(knob: &Knob) -> &'static str {
    if let Scope::NotHere(reason) = knob.scope {
        reason
    } else {
        ""
    }
}

/// Table in full width, whatever the width of the terminal, because it is searched with grep.
fn lines<const N: usize>(
    headings: &[&str; N],
    rows: impl Iterator<Item = [String; N]>,
) -> Vec<String> {
    let mut table = Table::new(headings).indented(0);
    rows.for_each(|row| table.row(row));
    table.lines(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_knob_is_in_every_form() {
        let json: serde_json::Value = serde_json::from_str(&table_json()).unwrap();
        let ignored: Vec<&str> = IGNORED
            .iter()
            .flat_map(|group| group.names.iter().copied())
            .collect();
        assert_eq!(json.as_array().unwrap().len(), KNOBS.len() + ignored.len());
        for (form, text) in [
            ("text", table_text()),
            ("markdown", table_markdown()),
            ("json", table_json()),
        ] {
            for env in KNOBS
                .iter()
                .map(|knob| knob.env)
                .chain(ignored.iter().copied())
            {
                // The next character must not continue the name, so that HOROVOD_AUTOTUNE is not
                // found in HOROVOD_AUTOTUNE_LOG.
                let found = text.match_indices(env).any(|(at, _)| {
                    !text[at + env.len()..]
                        .starts_with(|c: char| c == '_' || c.is_ascii_alphanumeric())
                });
                assert!(found, "{env} is not in the {form} form");
            }
        }
    }
}
