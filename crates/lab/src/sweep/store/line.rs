//! Formats a measurement as a line of `sweep.csv`, and parses it.

use std::str::FromStr;

use csv::StringRecord;

use crate::sweep::{Phase, Point, Row, Status, StepTimes};

/// First line of the file: its columns. Only failed measurements have a reason.
pub(super) const HEADER: &str = "phase,block,np,fusion_threshold_bytes,cycle_time_ms,cache,\
                                 hierarchical_allreduce,status,steps,step_ms_p10,step_ms_p50,\
                                 step_ms_p90,step_ms_mean,at_s,reason";

/// Names of the columns.
pub(super) fn columns() -> impl Iterator<Item = &'static str> {
    HEADER.split(',')
}

const PHASES: [(Phase, &str); 4] = [
    (Phase::Grid, "grid"),
    (Phase::Confirm, "confirm"),
    (Phase::Predicted, "predicted"),
    (Phase::Verify, "verify"),
];

/// Formats a row as a line. Missing values are empty.
pub(super) fn line(row: &Row) -> String {
    let phase = PHASES.iter().find(|(known, _)| *known == row.phase);
    let (status, reason) = match &row.status {
        Status::Done => ("done", ""),
        Status::Cut => ("cut", ""),
        Status::Failed(reason) => ("failed", reason.as_str()),
    };
    // A reason with several lines would look like a truncated line if only a part of it is written.
    let reason: Vec<&str> = reason.split_whitespace().collect();
    let ms = |of: fn(&StepTimes) -> f64| {
        let times = row.times.as_ref();
        times.map_or_else(String::new, |times| nanoseconds(of(times)).to_string())
    };
    let fields = [
        phase.map_or("", |(_, word)| word).to_owned(),
        row.block.to_string(),
        row.point.np.to_string(),
        row.point.fusion_threshold_bytes.to_string(),
        row.point.cycle_time_ms.to_string(),
        row.point.cache.to_string(),
        row.point.hierarchical_allreduce.to_string(),
        status.to_owned(),
        row.times
            .map_or_else(String::new, |times| times.steps.to_string()),
        ms(|times| times.p10),
        ms(|times| times.p50),
        ms(|times| times.p90),
        ms(|times| times.mean),
        format!("{:.3}", row.at_s),
        reason.join(" "),
    ];
    let mut writer = csv::Writer::from_writer(Vec::new());
    // Neither call can fail: both write to memory.
    let _ = writer.write_record(&fields);
    String::from_utf8_lossy(&writer.into_inner().unwrap_or_default()).into_owned()
}

/// Rounds a time in ms to nanoseconds, since more digits are not meaningful; the result is not 0,
/// which would be an invalid time.
fn nanoseconds(ms: f64) -> f64 {
    let rounded = (ms * 1e6).round() / 1e6;
    if rounded > 0.0 { rounded } else { ms }
}

/// Parses a record as a row; the error describes the fault.
pub(super) fn row(record: &StringRecord) -> Result<Row, String> {
    let (found, expected) = (record.len(), columns().count());
    if found != expected {
        return Err(format!("{found} fields instead of {expected}"));
    }
    let fields = Fields(record);
    let phase = PHASES
        .iter()
        .find(|(_, word)| *word == fields.text("phase"));
    let (phase, _) = phase.ok_or_else(|| format!("`{}` is not a phase", fields.text("phase")))?;
    let status = match fields.text("status") {
        "done" => Status::Done,
        "cut" => Status::Cut,
        "failed" => Status::Failed(fields.text("reason").to_owned()),
        other => return Err(format!("`{other}` is not a status")),
    };
    let times = match fields.text("steps") {
        "" if matches!(status, Status::Failed(_)) => None,
        "" => return Err("step times are missing".to_owned()),
        _ => Some(StepTimes {
            steps: fields.whole("steps")?,
            p10: fields.positive("step_ms_p10")?,
            p50: fields.positive("step_ms_p50")?,
            p90: fields.positive("step_ms_p90")?,
            mean: fields.positive("step_ms_mean")?,
        }),
    };
    Ok(Row {
        point: Point {
            np: fields.whole("np")?,
            fusion_threshold_bytes: fields.whole("fusion_threshold_bytes")?,
            cycle_time_ms: fields.number("cycle_time_ms")?,
            cache: fields.switch("cache")?,
            hierarchical_allreduce: fields.switch("hierarchical_allreduce")?,
        },
        phase: *phase,
        block: fields.whole("block")?,
        status,
        times,
        at_s: fields.number("at_s")?,
    })
}

/// Record with access by column.
struct Fields<'a>(&'a StringRecord);

impl Fields<'_> {
    fn text(&self, column: &str) -> &str {
        let index = columns().position(|known| known == column);
        index
            .and_then(|index| self.0.get(index))
            .unwrap_or_default()
    }

    fn parsed<T: FromStr>(
        &self,
        column: &str,
        expected: &str,
        is_valid: impl Fn(&T) -> bool,
    ) -> Result<T, String> {
        let text = self.text(column);
        let value = text.parse().ok().filter(is_valid);
        value.ok_or_else(|| format!("{column} is `{text}`, not {expected}"))
    }

    fn whole<T: FromStr>(&self, column: &str) -> Result<T, String> {
        self.parsed(column, "a whole number", |_| true)
    }

    fn number(&self, column: &str) -> Result<f64, String> {
        self.parsed(column, "a number from 0 on", |value| {
            (0.0..f64::INFINITY).contains(value)
        })
    }

    fn positive(&self, column: &str) -> Result<f64, String> {
        self.parsed(column, "a number above 0", |value| {
            *value > 0.0 && *value < f64::INFINITY
        })
    }

    fn switch(&self, column: &str) -> Result<bool, String> {
        self.parsed(column, "true or false", |_| true)
    }
}
