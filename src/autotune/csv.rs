//! Rows of the autotune log: Horovod's seven columns in its order, then Ronde's. `docs/AUTOTUNE.md`
//! describes them.

use ronde_tuner::{Best, Measurement, Point, Verdict};

use super::logbook::Traffic;
use super::space::{CACHE, CYCLE_MS, FUSION_MB, HIERARCHICAL_ALLGATHER, HIERARCHICAL_ALLREDUCE};

/// The header. Threshold in MB (MiB), that of GPUs if the step's tensors are there; score in
/// bytes/µs; torus is always 0.
pub(super) const COLUMNS: [&str; 15] = [
    "hierarchical_allreduce",
    "hierarchical_allgather",
    "torus_allreduce",
    "cache_enabled",
    "cycle_time_ms",
    "tensor_fusion_threshold",
    "score",
    "phase",
    "sample",
    "steps",
    "step_ms_p50",
    "step_ms_ci95",
    "predicted_step_ms",
    "negotiate_share",
    "on_gpu",
];

pub(super) fn measurement_row(measured: &Measurement, traffic: &Traffic) -> Vec<String> {
    let mut row = horovod_columns(&measured.setting, measured.step_ms, traffic);
    row.extend([
        measured.phase.to_string(),
        measured.sample.to_string(),
        measured.steps.to_string(),
        number(measured.step_ms_p50),
        number(measured.step_ms_ci95),
        measured.predicted_step_ms.map_or_else(String::new, number),
        negotiate_share(traffic),
        switch(traffic.on_gpu),
    ]);
    row
}

/// The best settings so far; before there are any, those just measured.
pub(super) fn best_row(
    best: Option<&Best>,
    measured: &Measurement,
    traffic: &Traffic,
) -> Vec<String> {
    let (setting, step_ms, ci95) = match best {
        Some(best) => (best.setting, best.step_ms, best.step_ms_ci95),
        None => (measured.setting, measured.step_ms, measured.step_ms_ci95),
    };
    let mut row = horovod_columns(&setting, step_ms, traffic);
    let (steps, predicted) = (String::new(), String::new());
    row.extend([
        "best".into(),
        measured.sample.to_string(),
        steps,
        number(step_ms),
        number(ci95),
        predicted,
    ]);
    row.extend([negotiate_share(traffic), switch(traffic.on_gpu)]);
    row
}

pub(super) fn final_row(phase: &str, verdict: &Verdict, traffic: &Traffic) -> Vec<String> {
    let mut row = horovod_columns(&verdict.chosen, verdict.chosen_step_ms, traffic);
    let empty = String::new;
    row.extend([
        phase.into(),
        empty(),
        verdict.steps_active.to_string(),
        number(verdict.chosen_step_ms),
    ]);
    row.extend([empty(), empty()]);
    row.extend([negotiate_share(traffic), switch(traffic.on_gpu)]);
    row
}

/// Mark of a reset of an elastic job: no measurement, so without score and step time.
pub(super) fn reset_row(resets: u64, setting: &Point) -> Vec<String> {
    let mut row = horovod_columns(setting, f64::NAN, &Traffic::default());
    row.extend(["reset".into(), resets.to_string()]);
    row.resize(COLUMNS.len(), String::new());
    row
}

fn horovod_columns(point: &Point, step_ms: f64, traffic: &Traffic) -> Vec<String> {
    let bytes_per_step = traffic.bytes as f64 / traffic.steps.max(1) as f64;
    vec![
        switch(point.flag(HIERARCHICAL_ALLREDUCE)),
        switch(point.flag(HIERARCHICAL_ALLGATHER)),
        switch(false),
        switch(point.flag(CACHE)),
        number(point.value(CYCLE_MS)),
        number(point.value(FUSION_MB)),
        number(bytes_per_step / (step_ms * 1e3)),
    ]
}

fn switch(on: bool) -> String {
    u8::from(on).to_string()
}

fn negotiate_share(traffic: &Traffic) -> String {
    if traffic.step_ms > 0.0 {
        number(traffic.negotiate_ms / traffic.step_ms)
    } else {
        String::new()
    }
}

/// Formats six significant digits without trailing zeros, as Horovod's log does.
fn number(value: f64) -> String {
    if !value.is_finite() {
        return String::new();
    }
    let digits = 5 - if value == 0.0 {
        0
    } else {
        value.abs().log10().floor() as i32
    };
    let text = format!("{value:.*}", digits.clamp(0, 12) as usize);
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_six_significant_digits() {
        assert_eq!(number(142.105263), "142.105");
        assert_eq!(number(128.0), "128");
        assert_eq!(number(0.0), "0");
        assert_eq!(number(0.0625), "0.0625");
        assert_eq!(number(2_345_678.9), "2345679");
        assert_eq!(number(f64::NAN), "");
    }
}
