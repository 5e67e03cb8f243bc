//! Formats a measurement as a line of `sweep.csv`, and parses it.

use std::str::FromStr;

use csv::StringRecord;

use crate::sweep::{Phase, Point, Row, Status, StepSummary};

/// First line of the file: its columns. Only failed measurements have a reason.
pub(super) const HEADER: &str = "phase,block,np,fusion_threshold_bytes,cycle_time_ms,cache,\
                                 hierarchical_allreduce,status,steps,step_ms_p10,step_ms_p50,\
                                 step_ms_p90,step_ms_mean,at_s,reason";

pub(super) fn columns() -> impl Iterator<Item = &'static str> {
    HEADER.split(',')
}

/// Formats a row as a line. Missing values are empty.
pub(super) fn line(row: &Row) -> String {
    let (status, reason) = match &row.status {
        Status::Done => ("done", ""),
        Status::Cut => ("cut", ""),
        Status::Failed(reason) => ("failed", reason.as_str()),
    };
    // A reason with several lines would look like a truncated line if only a part of it is written.
    let reason: Vec<&str> = reason.split_whitespace().collect();
    let Row { point, times, .. } = row;
    let cycle_ms = point.cycle_time_ms.to_string();
    let setting = (point.np, point.fusion_threshold_bytes, cycle_ms);
    let switches = (point.cache, point.hierarchical_allreduce);
    let steps = times.map(|_| row.steps);
    let ms = times.map(|of| [of.p10, of.p50, of.p90, of.mean].map(nanoseconds));
    let times = (steps, ms.unwrap_or_default());
    let end = (format!("{:.3}", row.at_s), reason.join(" "));
    let mut writer = csv::Writer::from_writer(Vec::new());
    // Neither call can fail: both write to memory.
    let _ = writer.serialize((row.phase, row.block, setting, switches, status, times, end));
    String::from_utf8_lossy(&writer.into_inner().unwrap_or_default()).into_owned()
}

/// Formats a time in ms with nanoseconds, but not as 0, which would be invalid.
fn nanoseconds(ms: f64) -> String {
    let rounded = (ms * 1e6).round() / 1e6;
    if rounded > 0.0 { rounded } else { ms }.to_string()
}

/// Parses a record as a row; the error describes the fault.
pub(super) fn row(record: &StringRecord) -> Result<Row, String> {
    let (found, expected) = (record.len(), columns().count());
    if found != expected {
        return Err(format!("{found} fields instead of {expected}"));
    }
    let fields = Fields(record);
    let phase = fields.text("phase");
    let phase = serde_json::from_value::<Phase>(phase.into())
        .map_err(|_| format!("`{phase}` is not a phase"))?;
    let status = match fields.text("status") {
        "done" => Status::Done,
        "cut" => Status::Cut,
        "failed" => Status::Failed(fields.text("reason").to_owned()),
        other => return Err(format!("`{other}` is not a status")),
    };
    let steps = match fields.text("steps") {
        "" if matches!(status, Status::Failed(_)) => None,
        "" => return Err("step times are missing".to_owned()),
        _ => Some(fields.whole("steps")?),
    };
    let times = |_| {
        Ok::<_, String>(StepSummary {
            p10: fields.positive("step_ms_p10")?,
            p50: fields.positive("step_ms_p50")?,
            p90: fields.positive("step_ms_p90")?,
            mean: fields.positive("step_ms_mean")?,
        })
    };
    Ok(Row {
        point: Point {
            np: fields.whole("np")?,
            fusion_threshold_bytes: fields.whole("fusion_threshold_bytes")?,
            cycle_time_ms: fields.number("cycle_time_ms")?,
            cache: fields.switch("cache")?,
            hierarchical_allreduce: fields.switch("hierarchical_allreduce")?,
        },
        phase,
        block: fields.whole("block")?,
        status,
        steps: steps.unwrap_or(0),
        times: steps.map(times).transpose()?,
        at_s: fields.number("at_s")?,
    })
}

struct Fields<'a>(&'a StringRecord);

impl Fields<'_> {
    fn text(&self, column: &str) -> &str {
        let index = columns().position(|known| known == column);
        let text = index.and_then(|index| self.0.get(index));
        text.unwrap_or_default()
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
        let is_valid = |value: &f64| *value >= 0.0 && value.is_finite();
        self.parsed(column, "a number from 0 on", is_valid)
    }

    fn positive(&self, column: &str) -> Result<f64, String> {
        let is_valid = |value: &f64| *value > 0.0 && value.is_finite();
        self.parsed(column, "a number above 0", is_valid)
    }

    fn switch(&self, column: &str) -> Result<bool, String> {
        self.parsed(column, "true or false", |_| true)
    }
}
