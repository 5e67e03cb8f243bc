//! Report of a sweep: `summary.md`, `summary.json` and the heat maps in its folder, and the text
//! for the terminal.

use std::path::Path;

use super::{heat, json, markdown, text};
use crate::chart::picture::PictureError;
use crate::present::Look;
use crate::present::output::{Output, OutputError as WriteError};
use crate::timeline::write_json;
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

/// Reason why the report could not be written completely.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReportError {
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error(transparent)]
    Picture(#[from] PictureError),
}

/// Writes the files of the report to `folder`, replacing earlier ones, and returns the text for the
/// terminal.
///
/// # Errors
/// [`ReportError`] if a file cannot be drawn or written.
pub(super) fn report(
    about: &About,
    verdict: &Verdict,
    folder: &Path,
    look: &Look,
) -> Result<String, ReportError> {
    // The most important file is written first, in case the disk is full.
    let summary = Output::open(&folder.join("summary.json"))?;
    summary.finish(|sink| write_json(sink, &json::Document::new(about, verdict)))?;
    let pictures = heat::write(about, verdict, folder)?;
    let summary = Output::open(&folder.join("summary.md"))?;
    summary.finish(|sink| sink.write_all(markdown::page(about, verdict, &pictures).as_bytes()))?;
    Ok(text::page(about, verdict, folder, look))
}

#[cfg(test)]
mod tests;
