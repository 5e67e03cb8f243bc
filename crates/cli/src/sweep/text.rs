//! Report of a sweep for the terminal: for each number of ranks the best settings, the conclusion
//! with the lines to paste, and its evidence.

use std::path::Path;

use super::report::About;
use super::{table, words};
use crate::present::{Look, harmless, page as sections, prose, titled, warnings, wrapped};
use ronde_lab::sweep::{Finding, Verdict};

/// Renders the text, which ends with a newline.
pub(super) fn page(about: &About, verdict: &Verdict, folder: &Path, look: &Look) -> String {
    let mut parts = vec![head(about, verdict, look), warnings(&about.warnings, look)];
    for finding in &verdict.findings {
        let on = match verdict.findings.len() {
            0 | 1 => String::new(),
            _ => format!(" on {}", words::ranks(finding)),
        };
        for (index, mut section) in table::sections(finding, look).into_iter().enumerate() {
            section.title += &on;
            parts.push(section.lines(look));
            if index == 0 {
                parts.push(conclusion(finding, &on, look));
            }
        }
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

fn conclusion(finding: &Finding, on: &str, look: &Look) -> Vec<String> {
    let mut lines = prose("  ", &words::conclusion(finding), look);
    let paste = words::paste(finding);
    if !paste.is_empty() {
        lines.push(String::new());
        // Not wrapped, because a line to paste has to stay one line.
        lines.extend(paste.iter().map(|line| format!("    {line}")));
    }
    titled(&format!("Conclusion{on}"), lines, look)
}
