//! Numbers as sweeps show them: times, shares, changes with their intervals.

use crate::html::number;
use ronde_lab::sweep::{Basis, Estimate, Finding, LEVEL, LEVEL_PREDICTED, Outcome};

/// Step time with its unit: measured, or predicted.
pub(super) fn time(outcome: &Outcome) -> String {
    let predicted = outcome.predicted_ms.map(|predicted| predicted.value);
    outcome
        .step_ms
        .or(predicted)
        .map_or_else(|| "–".to_owned(), number::ms)
}

/// A share in percent, with one decimal where it is not large.
pub(in crate::sweep) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent.abs() {
        value if !value.is_finite() => "–".to_owned(),
        value if value >= 99.95 => format!("{} %", number::fixed(percent, 0)),
        _ => format!("{} %", number::fixed(percent, 1)),
    }
}

/// The same with its sign.
pub(in crate::sweep) fn signed(share: f64) -> String {
    let text = percent(share);
    match text.starts_with(['−', '–']) || text.trim_start_matches(['0', '.']).starts_with(' ') {
        true => text,
        false => format!("+{text}"),
    }
}

/// Two ends of a range, which share their unit: `−2.1 to +3.0 %`.
pub(super) fn range(low: f64, high: f64) -> String {
    format!("{} to {}", signed(low).trim_end_matches(" %"), signed(high))
}

/// A change relative to something, with the interval after it.
pub(in crate::sweep) fn change(estimate: Option<Estimate>) -> String {
    let Some(Estimate { value, interval }) = estimate else {
        return "–".to_owned();
    };
    let interval = interval.map(|[low, high]| format!(" ({})", range(low, high).trim_end_matches(" %")));
    signed(value) + &interval.unwrap_or_default()
}

/// Of a finding's intervals, in percent.
pub(in crate::sweep) fn level(finding: &Finding) -> u32 {
    let level = match finding.basis {
        Basis::Predicted => LEVEL_PREDICTED,
        _ => LEVEL,
    };
    (level * 100.0).round() as u32
}

/// `6 min 12 s`.
pub(in crate::sweep) fn duration(seconds: f64) -> String {
    let seconds = if seconds.is_finite() {
        seconds.max(0.0)
    } else {
        0.0
    };
    if seconds < 10.0 {
        return format!("{seconds:.1} s");
    }
    let whole = seconds.round() as u64;
    match (whole / 3600, whole / 60 % 60, whole % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, 0) => format!("{minutes} min"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_changes() {
        assert_eq!(
            [0.0213, -0.0213, 1.5, f64::NAN].map(percent),
            ["2.1 %", "−2.1 %", "150 %", "–"]
        );
        assert_eq!(
            [0.0213, -0.0213, 0.0001, -0.0001].map(signed),
            ["+2.1 %", "−2.1 %", "0.0 %", "0.0 %"]
        );
        let estimate = |interval| {
            change(Some(Estimate {
                value: -0.02,
                interval,
            }))
        };
        assert_eq!(estimate(None), "−2.0 %");
        assert_eq!(estimate(Some([-0.045, 0.006])), "−2.0 % (−4.5 to +0.6)");
        assert_eq!(change(None), "–");
    }

    #[test]
    fn durations_choose_their_units() {
        assert_eq!(
            [3.21, 59.6, 372.4, 4000.0, f64::NAN].map(duration),
            ["3.2 s", "1 min", "6 min 12 s", "1 h 6 min", "0.0 s"]
        );
    }
}
