//! `summary.md`: what the terminal shows, with the pictures, as a page for a repository.

use super::heat::Picture;
use super::report::About;
use super::text::ranks;
use super::{table, words};
use crate::timeline::text::capitalized;
use ronde_lab::sweep::{Finding, Verdict};

/// The page.
pub(super) fn page(about: &About, verdict: &Verdict, pictures: &[Picture]) -> String {
    let mut page = format!("# Sweep of {}\n\n", plain(&about.job));
    if !about.how.is_empty() {
        page += &format!("{}.\n\n", capitalized(&plain(&about.how)));
    }
    page += &format!("{}.\n", plain(&words::effort(verdict)));
    if let Some(unfinished) = &about.unfinished {
        page += &format!("\n> {}\n", plain(unfinished));
    }
    for warning in &about.warnings {
        page += &format!("\n> {}\n", plain(warning));
    }
    for finding in &verdict.findings {
        page += &section(finding, pictures, verdict.findings.len() > 1);
    }
    if !about.command.is_empty() {
        page += &format!(
            "\n## How it was made\n\n```\n{}\n```\n",
            about.command.replace("```", "'''")
        );
    }
    if !about.machine.is_empty() {
        page += "\n| | |\n|---|---|\n";
        for (name, value) in &about.machine {
            page += &format!("| {} | {} |\n", plain(name), plain(value));
        }
    }
    page
}

fn section(finding: &Finding, pictures: &[Picture], several: bool) -> String {
    let title = match several {
        true => format!("\n## On {}\n", ranks(finding)),
        false => "\n## Verdict\n".to_owned(),
    };
    let mut text = title;
    for sentence in words::answer(finding) {
        text += &format!("\n{}\n", plain(&sentence));
    }
    let paste = words::paste(finding);
    if !paste.is_empty() {
        text += "\n```\n";
        paste.iter().for_each(|line| text += &format!("{line}\n"));
        text += "```\n";
    }
    for picture in pictures.iter().filter(|picture| picture.np == finding.np) {
        text += &format!("\n![{}]({})\n", plain(&picture.title), picture.svg);
    }
    let best = table::best(finding);
    if !best.rows.is_empty() {
        text += &format!(
            "\n### The best settings\n\n{}",
            table_of(&best.headings, &best.rows)
        );
    }
    if !finding.knobs.is_empty() {
        text += "\n### What makes the difference\n\n";
    }
    if !finding.knobs.is_empty() && !words::knobs_tell(finding) {
        text += &format!("{}\n", words::NO_KNOB);
    } else if !finding.knobs.is_empty() {
        text += "| knob | share | |\n|---|---:|---|\n";
        for effect in &finding.knobs {
            let cells = [
                effect.knob.name().to_owned(),
                words::percent(effect.share),
                words::effect(effect),
            ];
            text += &format!("| {} |\n", cells.join(" | "));
        }
        if finding.knobs.len() > 1 {
            text += &format!(
                "| together | {} | only in combination |\n",
                words::percent(finding.interaction)
            );
        }
    }
    text + &list("How sure", &words::noise(finding))
        + &list("Cut short or failed", &words::incomplete(finding))
}

fn table_of(headings: &[String], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| plain(cell)).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let rule: Vec<&str> = (0..headings.len())
        .map(|column| if column == 0 { "---" } else { "---:" })
        .collect();
    let mut table = line(headings) + &format!("|{}|\n", rule.join("|"));
    rows.iter().for_each(|row| table += &line(row));
    table
}

fn list(title: &str, sentences: &[String]) -> String {
    if sentences.is_empty() {
        return String::new();
    }
    let lines: String = sentences
        .iter()
        .map(|sentence| format!("- {}\n", plain(sentence)))
        .collect();
    format!("\n### {title}\n\n{lines}")
}

/// Text that means nothing to Markdown, in one line: names of models and reasons come from elsewhere.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if c.is_control() => plain.push(' '),
            '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '#' | '|' => plain.extend(['\\', c]),
            c => plain.push(c),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_is_no_markup() {
        assert_eq!(plain("a_b | <i>\n`c`"), "a\\_b \\| \\<i\\> \\`c\\`");
    }
}
