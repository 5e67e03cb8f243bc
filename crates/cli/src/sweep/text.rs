//! Report of a sweep for the terminal: for each number of ranks the best settings, the conclusion
//! with the lines to paste, and its evidence.

use std::path::Path;

use super::report::About;
use super::{table, words};
use crate::present::{List, Look, Section, prose, text};
use ronde_lab::sweep::{Finding, Verdict};

/// Renders the text, which ends with a newline.
pub(super) fn page(about: &About, verdict: &Verdict, folder: &Path, look: &Look) -> String {
    let warnings = Section::new("warnings", "Warnings");
    let mut sections = vec![
        head(about, verdict),
        warnings.list(List::Warnings, about.warnings.clone()),
    ];
    for finding in &verdict.findings {
        let on = match verdict.findings.len() {
            0 | 1 => String::new(),
            _ => format!(" on {}", words::ranks(finding)),
        };
        sections.push(table::best_settings(finding, &on));
        sections.push(conclusion(finding, &on));
        sections.extend(table::evidence(finding, &on));
    }
    let files = format!(
        "Everything is in {}: sweep.csv, summary.md, summary.json, heat*.svg, heat*.png",
        folder.display()
    );
    sections.push(Section::new("files", "").untitled().text(files));
    text(&sections, look)
}

fn head(about: &About, verdict: &Verdict) -> Section<'static> {
    let effort = words::effort(verdict);
    Section::new("head", "")
        .untitled()
        .text(about.whole())
        .terminal(move |look| prose("  ", std::slice::from_ref(&effort), look))
        .list(List::Warnings, about.unfinished.iter().cloned().collect())
}

fn conclusion(finding: &Finding, on: &str) -> Section<'static> {
    let section = Section::new("conclusion", format!("Conclusion{on}"));
    let section = section.texts(words::conclusion(finding));
    let paste = words::paste(finding);
    if paste.is_empty() {
        return section;
    }
    // Not wrapped, because a line to paste has to stay one line.
    let lines = paste.into_iter().map(|line| format!("    {line}"));
    let lines: Vec<String> = std::iter::once(String::new()).chain(lines).collect();
    section.terminal(move |_| lines.clone())
}
