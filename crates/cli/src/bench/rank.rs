//! One rank of `ronde bench`: joins the job, runs the plan, and on rank 0 prints the report.

use std::process::ExitCode;

use super::progress::Display;
use super::{Args, Error, print};
use crate::present::output::{self, write_json};
use ronde::AutotuneReport;
use ronde::context::Context;
use ronde::knobs::Knobs;
use ronde_lab::bench::report::{
    AutotuneSummary, BenchReport, SlowRankReport, StepSummary, gb_per_s,
};
use ronde_lab::bench::{self, Measurement, Plan};

/// Runs `plan` as a rank of the job that the environment describes; `knobs` holds the settings of
/// the environment and of the flags.
///
/// # Errors
/// The rank cannot join the job, a step fails, or the JSON file cannot be written.
pub(super) fn main(args: &Args, knobs: &Knobs, plan: &Plan) -> Result<ExitCode, Error> {
    let builder = Context::builder().knobs(knobs.clone());
    let context = builder.quiet_autotune().build()?;
    let mut display = Display::new(&context);
    let outcome = bench::run(&context, plan, &mut display);
    let autotune = display.autotune();
    drop(display);
    let measurement = outcome?;
    if context.rank() > 0 {
        return Ok(ExitCode::SUCCESS);
    }
    let report = report(args, knobs, plan, &measurement, &context, autotune);
    let printed = match output::stdout_is_free(&output::given([&args.json])) {
        true => print(&format!("{report}\n")),
        false => ExitCode::SUCCESS,
    };
    let json = output::open(&args.json)?;
    output::write(json, |sink| write_json(sink, &report))?;
    Ok(printed)
}

fn report(
    args: &Args,
    knobs: &Knobs,
    plan: &Plan,
    measurement: &Measurement,
    context: &Context,
    autotune: Option<AutotuneReport>,
) -> BenchReport {
    let workload = &plan.load.workload;
    let bytes_per_step = workload.bytes();
    let Some(step_ms) = StepSummary::new(&measurement.step_ms) else {
        unreachable!("a plan has at least one timed step")
    };
    BenchReport {
        model: workload.name.clone(),
        np: context.size(),
        backend: context.backend().to_owned(),
        link: knobs.link.map(Into::into),
        compute_ms: args.load.compute_ms(),
        compute_kind: args.load.compute_kind().as_str(),
        slow_rank: args.load.slow_rank.map(|slow| SlowRankReport {
            rank: slow.rank,
            ms: slow.ms,
        }),
        steps: measurement.step_ms.len(),
        tensors: workload.tensors.len(),
        bytes_per_step,
        settings: context.settings().value.into(),
        step_ms,
        gb_per_s: (args.load.compute_ms() == 0.0 && args.load.slow_rank.is_none())
            .then(|| gb_per_s(bytes_per_step, step_ms.p50)),
        memcpy_gb_per_s: measurement.memcpy_gb_per_s,
        mpi: measurement.mpi,
        autotune: autotune.map(|report| AutotuneSummary::new(report, measurement.tuning_steps)),
    }
}
