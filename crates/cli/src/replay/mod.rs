//! `ronde replay`: predicts the step time of a recorded job with other settings, networks and
//! numbers of ranks.
//!
//! It reads a recording as `ronde timeline` does, or a profile, and predicts with
//! [`ronde_job::replay`]. It shows a table, a heat map and the best setting, and writes JSON, CSV
//! or one HTML page.

mod args;
mod charts;
mod csv;
pub(super) mod job;
mod outlook;
mod report;
#[cfg(test)]
mod tests;

use std::process::ExitCode;

use crate::error::Error;
pub(super) use args::{Args, CYCLE_MS, cycle_ms, fusion_mb, switch};
use job::{Job, Recording};
use outlook::Outlook;
use serde::Serialize;

use super::present::output::{self, stdout_is_free};
use super::present::{Look, warn};
use super::print;
use super::timeline::write_json;
use ronde_job::gate::Withheld;
use ronde_job::replay::Hosts;

/// Version of the JSON format.
const OUTLOOK_VERSION: u32 = 1;

/// Runs the subcommand.
pub(super) fn main(args: &Args) -> Result<ExitCode, Error> {
    let job = Job::read(&Recording {
        paths: &args.paths,
        outputs: &args.outputs(),
        steps: args.steps.clone(),
        ranks_per_host: args.recorded_ranks_per_host,
    })?;
    let (json, csv, html) = (
        output::open(&args.json)?,
        output::open(&args.csv)?,
        output::open(&args.html)?,
    );
    let outlook = outlook::outlook(&job, args)?;

    let mut code = ExitCode::SUCCESS;
    if stdout_is_free(&args.outputs()) {
        code = print(&report::text(&job, &outlook, &Look::of_stdout(0)));
    } else {
        for warning in &job.warnings {
            warn("replay", warning);
        }
        if let Some(withheld) = job.withheld() {
            warn("replay", &withheld.to_string());
        }
    }
    output::write(json, |sink| {
        write_json(sink, &Document::new(&job, &outlook))
    })?;
    output::write(csv, |sink| csv::write(sink, &outlook))?;
    output::write(html, |sink| {
        sink.write_all(report::page(&job, &outlook).as_bytes())
    })?;
    Ok(code)
}

/// JSON document.
#[derive(Serialize)]
struct Document<'a> {
    ronde_replay: u32,
    source: &'a str,
    ranks: u32,
    ranks_per_host: u32,
    /// Source of the assignment of ranks to hosts.
    hosts_are: Hosts,
    tensors: usize,
    bytes_per_step: u64,
    measured_step_ms: f64,
    modelled_step_ms: f64,
    /// Common error of all predictions: standard deviation as a share.
    level_error: f64,
    warnings: &'a [String],
    /// Reason why there is no `best`; null if there is one.
    withheld: Option<Withheld>,
    /// Settings in force that the recording does not state; `current` has null for them.
    unknown_settings: &'a [String],
    #[serde(flatten)]
    outlook: &'a Outlook,
}

impl<'a> Document<'a> {
    fn new(job: &'a Job, outlook: &'a Outlook) -> Self {
        let fit = &job.fit;
        Self {
            ronde_replay: OUTLOOK_VERSION,
            source: &job.name,
            ranks: fit.place.ranks,
            ranks_per_host: fit.place.ranks_per_host,
            hosts_are: fit.place.hosts,
            tensors: fit.workload.tensors.len(),
            bytes_per_step: fit.workload.bytes(),
            measured_step_ms: fit.measured_us / 1e3,
            modelled_step_ms: fit.modelled_us / 1e3,
            level_error: fit.level_error(),
            warnings: &job.warnings,
            withheld: job.withheld(),
            unknown_settings: &job.evidence.unknown_settings,
            outlook,
        }
    }
}
