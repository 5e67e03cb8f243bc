//! Report of a sweep for the terminal: for each number of ranks the best settings, the conclusion
//! with the lines to paste, and its evidence.

use std::path::Path;

use super::report::About;
use super::{table, words};
use crate::present::{Look, harmless, page as sections, titled, warnings, wrapped};
use ronde_lab::sweep::{Finding, Verdict};

/// Renders the text, which ends with a newline.
pub(super) fn page(about: &About, verdict: &Verdict, folder: &Path, look: &Look) -> String {
    let mut parts = vec![head(about, verdict, look), warnings(&about.warnings, look)];
    let several = verdict.findings.len() > 1;
    for finding in &verdict.findings {
        let on = if several {
            format!(" on {}", ranks(finding))
        } else {
            String::new()
        };
        let best = table::best(finding).lines(look.width);
        parts.push(titled(&format!("Best settings{on}"), best, look));
        parts.push(conclusion(finding, &on, look));
        let knobs = match finding.knobs.is_empty() || words::knobs_tell(finding) {
            true => table::knobs(finding, Some(look)).lines(look.width),
            false => wrapped("  ", words::NO_KNOB, look.width),
        };
        parts.push(titled(&format!("Effect of each knob{on}"), knobs, look));
        parts.push(bullets(&format!("Noise{on}"), &words::noise(finding), look));
        let incomplete = words::incomplete(finding);
        parts.push(bullets(
            &format!("Cut short or failed{on}"),
            &incomplete,
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

fn conclusion(finding: &Finding, on: &str, look: &Look) -> Vec<String> {
    let mut lines: Vec<String> = words::conclusion(finding)
        .iter()
        .flat_map(|sentence| wrapped("  ", &harmless(sentence), look.width))
        .collect();
    let paste = words::paste(finding);
    if !paste.is_empty() {
        lines.push(String::new());
        // Not wrapped, because a line to paste has to stay one line.
        lines.extend(paste.iter().map(|line| format!("    {line}")));
    }
    titled(&format!("Conclusion{on}"), lines, look)
}

fn bullets(title: &str, sentences: &[String], look: &Look) -> Vec<String> {
    let lines = sentences
        .iter()
        .flat_map(|sentence| wrapped("  - ", &harmless(sentence), look.width))
        .collect();
    titled(title, lines, look)
}

/// Number of ranks as text: `2 ranks`.
pub(super) fn ranks(finding: &Finding) -> String {
    crate::present::units::counted(finding.np.into(), "rank")
}
