//! What a sweep leaves: `summary.md`, `summary.json` and the heat maps in its folder, and the text for the terminal.

use std::path::Path;

use super::{heat, json, markdown, text};
use crate::chart::picture::PictureError;
use crate::present::Look;
use crate::present::output::{Output, OutputError as WriteError};
use crate::timeline::write_json;
use ronde_lab::sweep::Verdict;

/// What the reader of a report has to know besides the numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct About {
    /// What was swept: `resnet50`.
    pub(super) job: String,
    /// How, in a few words: `40 ms of compute (sleep), link shaped to 1000 µs and 2.5 GB/s`; may be empty.
    pub(super) how: String,
    /// What made it, to be typed again.
    pub(super) command: String,
    /// Facts of the machine and the versions, by name; in this order.
    pub(super) machine: Vec<(String, String)>,
    /// Why the sweep is not whole: interrupted, the budget spent, so many measurements missing.
    pub(super) unfinished: Option<String>,
    /// What else should be known before the numbers are believed.
    pub(super) warnings: Vec<String>,
}

impl About {
    /// What was swept and how: `resnet50, 40 ms of compute (sleep)`.
    pub(super) fn whole(&self) -> String {
        joined(&self.job, &self.how)
    }
}

/// What and how, as far as there is something to say.
pub(super) fn joined(what: &str, how: &str) -> String {
    match how {
        "" => what.to_owned(),
        how => format!("{what}, {how}"),
    }
}

/// Why the report is not whole.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReportError {
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error(transparent)]
    Picture(#[from] PictureError),
}

/// Writes the files of the report to `folder`, those of before replaced, and gives the text for the terminal.
///
/// # Errors
/// [`ReportError`] if a file cannot be drawn or written.
pub(super) fn report(
    about: &About,
    verdict: &Verdict,
    folder: &Path,
    look: &Look,
) -> Result<String, ReportError> {
    // What matters most first: a disk that is full keeps what was written.
    let summary = Output::open(&folder.join("summary.json"))?;
    summary.finish(|sink| write_json(sink, &json::Document::new(about, verdict)))?;
    let pictures = heat::write(about, verdict, folder)?;
    let summary = Output::open(&folder.join("summary.md"))?;
    summary.finish(|sink| sink.write_all(markdown::page(about, verdict, &pictures).as_bytes()))?;
    Ok(text::page(about, verdict, folder, look))
}

#[cfg(test)]
mod tests;
