//! Result as JSON, and the runs as CSV.

use std::io::{self, Write};

use ronde_command::{Outcome, Parameter, Reason, Setting};
use serde_json::{Map, Value, json};

use super::progress::phase_name;
use super::report::Report;

/// Version of the JSON document.
const VERSION: u32 = 1;

/// Result and runs as JSON.
pub(super) fn json(report: &Report) -> Value {
    let job = report.job;
    let verdict = &report.verdict;
    let shown = |cost: f64| rounded(job.figure(cost));
    let figure = |setting: &Setting| report.cost_of(setting).map(shown);
    let start = job.plan.start();
    let runs = report.rows.iter().map(|row| {
        let (status, value, reason) = parts(&row.outcome);
        json!({
            "phase": phase_name(row.phase),
            "setting": setting(report, &row.setting),
            "status": status,
            "value": value.map(shown),
            "check": row.outcome.check(),
            "reason": reason,
            "seconds": row.seconds,
        })
    });
    json!({
        "ronde_tune": VERSION,
        "command": job.template.identity(),
        "metric": job.metric.name(),
        "better": job.better(),
        "start": {"setting": setting(report, &start), "value": figure(&start)},
        "chosen": {"setting": setting(report, &verdict.chosen), "value": figure(&verdict.chosen)},
        "candidate": verdict.candidate.as_ref().map(|candidate| setting(report, candidate)),
        "kept_start": verdict.chosen == start,
        "gain_pct": report.gains().map(|gains| gains.map(|share| rounded(100.0 * share))),
        "pairs": verdict.pairs,
        "finished": verdict.reason != Reason::Unfinished,
        "verdict": report.answer().join(" "),
        "runs": runs.collect::<Vec<_>>(),
    })
}

/// A figure to twelve digits: a throughput is the reciprocal of its cost, which changes the last.
fn rounded(value: f64) -> f64 {
    format!("{value:.11e}").parse().unwrap_or(value)
}

/// Status of a run, its cost, and why it failed.
fn parts(outcome: &Outcome) -> (&'static str, Option<f64>, Option<&str>) {
    match outcome {
        Outcome::Measured { value, .. } => ("measured", Some(*value), None),
        Outcome::Stopped { value } => ("stopped", Some(*value), None),
        Outcome::Failed { reason } => ("failed", None, Some(reason)),
    }
}

fn setting(report: &Report, setting: &Setting) -> Value {
    let parameters = report.job.plan.parameters().iter().zip(&setting.0);
    let values = parameters.map(|(parameter, index)| {
        let text = parameter.value(*index);
        // Numbers and booleans as such; everything else is a string.
        let value: Option<Value> = serde_json::from_str(text).ok();
        let value = value.filter(|value| value.is_number() || value.is_boolean());
        let value = value.unwrap_or_else(|| Value::String(text.to_owned()));
        (parameter.name().to_owned(), value)
    });
    Value::Object(values.collect::<Map<_, _>>())
}

/// A row for each run.
pub(super) fn csv(report: &Report, sink: &mut dyn Write) -> io::Result<()> {
    let mut writer = csv::Writer::from_writer(sink);
    let parameters = report.job.plan.parameters();
    let mut header = vec!["run", "phase"];
    header.extend(parameters.iter().map(Parameter::name));
    header.extend(["status", "value", "check", "seconds", "reason"]);
    writer.write_record(&header)?;
    for (index, row) in report.rows.iter().enumerate() {
        let (status, cost, reason) = parts(&row.outcome);
        let check = row.outcome.check().map(|check| check.to_string());
        let mut record = vec![(index + 1).to_string(), phase_name(row.phase).to_owned()];
        let values = parameters.iter().zip(&row.setting.0);
        record.extend(values.map(|(parameter, level)| parameter.value(*level).to_owned()));
        let figure = cost.map(|cost| rounded(report.job.figure(cost)).to_string());
        record.extend([
            status.to_owned(),
            figure.unwrap_or_default(),
            check.unwrap_or_default(),
            format!("{:.3}", row.seconds),
            reason.unwrap_or_default().to_owned(),
        ]);
        writer.write_record(&record)?;
    }
    writer.flush()
}
