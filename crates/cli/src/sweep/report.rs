//! Report of a sweep: `summary.md`, `summary.json` and the heat maps in its folder, and the text
//! for the terminal. For each number of ranks it has the conclusion with the lines to paste, the
//! best settings, and the evidence.

use std::path::Path;

use super::heat::{self, Picture};
use super::{json, table, words};
use crate::error::Error;
use crate::present::output::{save, save_json};
use crate::present::{List, Look, Section, Table, markdown, text};
use ronde_lab::sweep::Verdict;

/// Context of a report besides the measurements.
#[derive(Clone, Debug, Default)]
pub(super) struct About {
    /// Name of the swept job: `resnet50`.
    pub(super) job: String,
    /// Load of the job as a short text: `40 ms of compute (sleep), link shaped to 1000 µs and 2.5
    /// GB/s`; may be empty.
    pub(super) how: String,
    /// Command that made the sweep, quoted for a shell.
    pub(super) command: String,
    /// Facts about the machine and versions, as ordered pairs of name and value.
    pub(super) machine: Vec<(String, String)>,
    /// Reason why the sweep is incomplete: interrupted, budget spent, a number of missing
    /// measurements.
    pub(super) unfinished: Option<String>,
    /// Warnings about the measurements.
    pub(super) warnings: Vec<String>,
}

impl About {
    /// Name and load of the job: `resnet50, 40 ms of compute (sleep)`.
    pub(super) fn whole(&self) -> String {
        joined(&self.job, &self.how)
    }
}

/// Joins the name and the load of a job; the load may be empty.
pub(super) fn joined(what: &str, how: &str) -> String {
    match how {
        "" => what.to_owned(),
        how => format!("{what}, {how}"),
    }
}

/// Writes the files of the report to `folder`, replacing earlier ones, and returns the text for the
/// terminal.
pub(super) fn report(
    about: &About,
    verdict: &Verdict,
    folder: &Path,
    look: &Look,
) -> Result<String, Error> {
    // The most important file is written first, in case the disk is full.
    let document = json::Document::new(about, verdict);
    save_json(&folder.join("summary.json"), &document)?;
    let pictures = heat::write(about, verdict, folder)?;
    save(&folder.join("summary.md"), page(about, verdict, &pictures))?;
    Ok(screen(about, verdict, folder, look))
}

/// Renders the text for the terminal, which ends with a newline.
fn screen(about: &About, verdict: &Verdict, folder: &Path, look: &Look) -> String {
    let mut sections = sections(about, verdict, &[]);
    sections.push(Section::new("files", "").untitled().text(format!(
        "Everything is in {}: sweep.csv, summary.md, summary.json, heat*.svg, heat*.png",
        folder.display()
    )));
    text(&sections, look)
}

/// Renders the page in Markdown, for a repository.
fn page(about: &About, verdict: &Verdict, pictures: &[Picture]) -> String {
    let mut sections = sections(about, verdict, pictures);
    let command = Some(about.command.clone()).filter(|command| !command.is_empty());
    let mut machine = Table::headed("<machine; <");
    for (name, value) in &about.machine {
        machine.row([name, value].map(String::as_str));
    }
    let made = Section::new("made", "How it was made");
    sections.push(made.code(command).table(machine));
    markdown(&format!("Sweep of {}", about.job), &sections)
}

fn sections(about: &About, verdict: &Verdict, pictures: &[Picture]) -> Vec<Section<'static>> {
    let warnings = about.unfinished.iter().chain(&about.warnings);
    let head = Section::new("head", "").untitled().text(about.whole());
    let head = head.text(words::effort(verdict));
    let mut sections = vec![head.list(List::Warnings, warnings.cloned().collect())];
    for finding in &verdict.findings {
        let on = match verdict.findings.len() {
            0 | 1 => String::new(),
            _ => format!(" on {}", words::ranks(finding)),
        };
        let conclusion = Section::new("conclusion", format!("Conclusion{on}"))
            .texts(words::conclusion(finding))
            .code(words::paste(finding));
        let pictures = pictures.iter().filter(|picture| picture.np == finding.np);
        sections.push(pictures.fold(conclusion, |section, picture| {
            section.picture(&picture.title, &picture.svg)
        }));
        sections.push(table::best_settings(finding, &on));
        sections.extend(table::evidence(finding, &on));
    }
    sections
}

#[cfg(test)]
mod tests;
