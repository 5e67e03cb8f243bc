//! A sweep for people at a terminal: the answer first, then what to paste, the best few, what matters, and how sure that is.

use std::path::Path;

use super::report::About;
use super::{table, words};
use crate::timeline::text::{Look, Table, harmless, page as sections, titled, warnings, wrapped};
use ronde_lab::sweep::{Finding, Verdict};

/// Characters of a bar that stands for all.
const BAR: usize = 20;

/// The text, which ends with a line end.
pub(super) fn page(about: &About, verdict: &Verdict, folder: &Path, look: &Look) -> String {
    let mut parts = vec![head(about, verdict, look), warnings(&about.warnings, look)];
    let several = verdict.findings.len() > 1;
    for finding in &verdict.findings {
        let on = if several {
            format!(" on {}", ranks(finding))
        } else {
            String::new()
        };
        parts.push(answer(finding, &on, look));
        parts.push(best(finding, &on, look));
        parts.push(knobs(finding, &on, look));
        parts.push(bullets(&format!("How sure{on}"), &words::noise(finding), look));
        parts.push(bullets(
            &format!("Cut short or failed{on}"),
            &words::incomplete(finding),
            look,
        ));
    }
    let files = format!(
        "Everything is in {}: sweep.csv, summary.md, summary.json, heat*.svg, heat*.png",
        folder.display()
    );
    parts.push(wrapped("", &harmless(&files), look.width));
    sections(parts, look)
}

fn head(about: &About, verdict: &Verdict, look: &Look) -> Vec<String> {
    let mut lines = wrapped("", &harmless(&about.whole()), look.width);
    lines.extend(wrapped("  ", &words::effort(verdict), look.width));
    if let Some(unfinished) = &about.unfinished {
        let line = wrapped("  ! ", &harmless(unfinished), look.width);
        lines.extend(line.iter().map(|line| look.warn(line)));
    }
    lines
}

fn answer(finding: &Finding, on: &str, look: &Look) -> Vec<String> {
    let mut lines: Vec<String> = words::answer(finding)
        .iter()
        .flat_map(|sentence| wrapped("  ", &harmless(sentence), look.width))
        .collect();
    let paste = words::paste(finding);
    if !paste.is_empty() {
        lines.push(String::new());
        // Not wrapped: a line that is to be pasted stays one.
        lines.extend(paste.iter().map(|line| format!("    {line}")));
    }
    titled(&format!("Verdict{on}"), lines, look)
}

fn best(finding: &Finding, on: &str, look: &Look) -> Vec<String> {
    let best = table::best(finding);
    if best.rows.is_empty() {
        return Vec::new();
    }
    let headings: Vec<String> = best
        .headings
        .iter()
        .enumerate()
        .map(|(index, heading)| {
            if index == 0 {
                format!("<{heading}")
            } else {
                heading.clone()
            }
        })
        .collect();
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    let mut shown = Table::new(&headings);
    best.rows.into_iter().for_each(|row| shown.row(row));
    titled(
        &format!("The best settings{on}"),
        shown.lines(look.width.max(100)),
        look,
    )
}

fn knobs(finding: &Finding, on: &str, look: &Look) -> Vec<String> {
    let title = format!("What makes the difference{on}");
    if finding.knobs.is_empty() {
        return Vec::new();
    }
    if !words::knobs_tell(finding) {
        return titled(&title, wrapped("  ", words::NO_KNOB, look.width), look);
    }
    let mut shown = Table::new(&["<", "share", "|", "<"]);
    let mut row = |name: &str, share: f64, said: String| {
        shown.row([
            name.to_owned(),
            words::percent(share),
            look.gauge(share, BAR),
            said,
        ]);
    };
    for effect in &finding.knobs {
        row(effect.knob.name(), effect.share, words::effect(effect));
    }
    if finding.knobs.len() > 1 {
        row("together", finding.interaction, "only in combination".to_owned());
    }
    titled(&title, shown.lines(look.width.max(100)), look)
}

fn bullets(title: &str, sentences: &[String], look: &Look) -> Vec<String> {
    let lines = sentences
        .iter()
        .flat_map(|sentence| wrapped("  - ", &harmless(sentence), look.width))
        .collect();
    titled(title, lines, look)
}

/// `2 ranks`.
pub(super) fn ranks(finding: &Finding) -> String {
    crate::html::number::counted(finding.np.into(), "rank")
}
