//! `summary.md`: the report of the terminal with the pictures, as a Markdown page for a repository.

use super::heat::Picture;
use super::report::About;
use super::{table, words};
use crate::present::{plain, units::capitalized};
use ronde_lab::sweep::{Finding, Verdict};

/// Renders the page.
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
    let mut text = match several {
        true => format!("\n## On {}\n", words::ranks(finding)),
        false => "\n## Conclusion\n".to_owned(),
    };
    for sentence in words::conclusion(finding) {
        text += &format!("\n{}\n", plain(&sentence));
    }
    let paste = words::paste(finding);
    if !paste.is_empty() {
        text += &format!("\n```\n{}\n```\n", paste.join("\n"));
    }
    for picture in pictures.iter().filter(|picture| picture.np == finding.np) {
        text += &format!("\n![{}]({})\n", plain(&picture.title), picture.svg);
    }
    text += &table::best_settings(finding, "").markdown();
    let evidence = table::evidence(finding, "");
    text + &evidence.map(|section| section.markdown()).concat()
}
