//! Formats a measurement as a line of `sweep.csv`, and parses it.

use csv::StringRecord;

use crate::sweep::{Phase, Point, Row, Status, StepTimes};

/// Columns of the file.
const COLUMNS: [&str; 14] = [
    "phase",
    "block",
    "np",
    "fusion_threshold_bytes",
    "cycle_time_ms",
    "cache",
    "hierarchical_allreduce",
    "status",
    "steps",
    "step_ms_p10",
    "step_ms_p50",
    "step_ms_p90",
    "step_ms_mean",
    "at_s",
];

/// Last column; only failed measurements have a reason.
const REASON: &str = "reason";

/// Names in the header, in order.
pub(super) fn columns() -> impl Iterator<Item = &'static str> {
    COLUMNS.into_iter().chain([REASON])
}

/// Header line.
pub(super) fn header() -> String {
    format!("{},{REASON}\n", COLUMNS.join(","))
}

/// Formats a row as a line. Missing values are empty.
pub(super) fn line(row: &Row) -> String {
    let Point {
        np,
        fusion_threshold_bytes,
        cycle_time_ms,
        cache,
        hierarchical_allreduce,
    } = row.point;
    let (status, reason) = match &row.status {
        Status::Done => ("done", ""),
        Status::Cut => ("cut", ""),
        Status::Failed(reason) => ("failed", reason.as_str()),
    };
    let times = match row.times {
        Some(times) => {
            let StepTimes {
                steps,
                p10,
                p50,
                p90,
                mean,
            } = times;
            [steps.to_string()]
                .into_iter()
                .chain([p10, p50, p90, mean].map(|ms| nanoseconds(ms).to_string()))
                .collect()
        }
        None => vec![String::new(); 5],
    };
    let mut fields = vec![
        word(row.phase).to_owned(),
        row.block.to_string(),
        np.to_string(),
        fusion_threshold_bytes.to_string(),
        cycle_time_ms.to_string(),
        cache.to_string(),
        hierarchical_allreduce.to_string(),
        status.to_owned(),
    ];
    fields.extend(times);
    fields.push(format!("{:.3}", row.at_s));
    // A reason with several lines would look like a truncated line if only a part of it is written.
    let reason: Vec<&str> = reason.split_whitespace().collect();
    fields.push(reason.join(" "));
    let mut writer = csv::Writer::from_writer(Vec::new());
    // Neither call can fail: both write to memory.
    let _ = writer.write_record(&fields);
    let bytes = writer.into_inner().unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Rounds a time in ms to nanoseconds, since more digits are not meaningful; the result is not 0,
/// which would be an invalid time.
fn nanoseconds(ms: f64) -> f64 {
    let rounded = (ms * 1e6).round() / 1e6;
    if rounded > 0.0 { rounded } else { ms }
}

const PHASES: [(Phase, &str); 4] = [
    (Phase::Grid, "grid"),
    (Phase::Confirm, "confirm"),
    (Phase::Predicted, "predicted"),
    (Phase::Verify, "verify"),
];

fn word(phase: Phase) -> &'static str {
    let found = PHASES.iter().find(|(known, _)| *known == phase);
    found.map_or("", |(_, word)| word)
}

/// Parses a record as a row; the error describes the fault.
pub(super) fn row(record: &StringRecord) -> Result<Row, String> {
    if record.len() != COLUMNS.len() + 1 {
        return Err(format!(
            "{} fields instead of {}",
            record.len(),
            COLUMNS.len() + 1
        ));
    }
    let field = |name: &str| {
        let index = COLUMNS.iter().position(|column| *column == name);
        index
            .and_then(|index| record.get(index))
            .unwrap_or_default()
    };
    let phase = PHASES.iter().find(|(_, word)| *word == field("phase"));
    let (phase, _) = phase.ok_or_else(|| format!("`{}` is no phase", field("phase")))?;
    let status = match field("status") {
        "done" => Status::Done,
        "cut" => Status::Cut,
        "failed" => Status::Failed(record.get(COLUMNS.len()).unwrap_or_default().to_owned()),
        other => return Err(format!("`{other}` is no status")),
    };
    let times = match field("steps") {
        "" => None,
        steps => Some(StepTimes {
            steps: whole("steps", steps)?,
            p10: positive("step_ms_p10", field("step_ms_p10"))?,
            p50: positive("step_ms_p50", field("step_ms_p50"))?,
            p90: positive("step_ms_p90", field("step_ms_p90"))?,
            mean: positive("step_ms_mean", field("step_ms_mean"))?,
        }),
    };
    if times.is_none() && !matches!(status, Status::Failed(_)) {
        return Err("step times are missing".to_owned());
    }
    Ok(Row {
        point: Point {
            np: whole("np", field("np"))?,
            fusion_threshold_bytes: whole(
                "fusion_threshold_bytes",
                field("fusion_threshold_bytes"),
            )?,
            cycle_time_ms: number("cycle_time_ms", field("cycle_time_ms"))?,
            cache: switch("cache", field("cache"))?,
            hierarchical_allreduce: switch(
                "hierarchical_allreduce",
                field("hierarchical_allreduce"),
            )?,
        },
        phase: *phase,
        block: whole("block", field("block"))?,
        status,
        times,
        at_s: number("at_s", field("at_s"))?,
    })
}

fn whole<T: std::str::FromStr>(name: &str, text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|_| format!("{name} is `{text}`, not a whole number"))
}

fn number(name: &str, text: &str) -> Result<f64, String> {
    let number = text
        .parse()
        .ok()
        .filter(|&number| (0.0..f64::INFINITY).contains(&number));
    number.ok_or_else(|| format!("{name} is `{text}`, not a number from 0 on"))
}

fn positive(name: &str, text: &str) -> Result<f64, String> {
    let ms = number(name, text).ok().filter(|&ms| ms > 0.0);
    ms.ok_or_else(|| format!("{name} is `{text}`, not a number above 0"))
}

fn switch(name: &str, text: &str) -> Result<bool, String> {
    text.parse()
        .map_err(|_| format!("{name} is `{text}`, neither true nor false"))
}
