//! Formats numbers for sentences: few digits, no trailing zeros.

use super::best::Difference;
use ronde_job::units;
pub use ronde_job::units::{change as signed, counted, list, short as number};

/// Formats the value of a knob with four significant digits.
pub fn knob(value: f64) -> String {
    if !value.is_finite() {
        return units::NONE.to_owned();
    }
    let magnitude = match value {
        0.0 => 0,
        _ => value.abs().log10().floor() as i32,
    };
    let decimals = (3 - magnitude).clamp(0, 9) as usize;
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// Formats a share in percent, without sign.
pub fn percent(share: f64) -> String {
    units::percent(share.abs())
}

/// Formats a difference with its interval: `−20.0 % (−21.3 to −18.7 %)`.
pub fn within(difference: &Difference) -> String {
    let Difference { mean, low, high } = *difference;
    format!("{} ({})", signed(mean), units::changes(low, high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_that_count() {
        assert_eq!(
            [14.5041, 37.2728, 0.0625, 128.0, 0.0].map(knob),
            ["14.5", "37.27", "0.0625", "128", "0"]
        );
        assert_eq!(
            [0.0213, -0.213, 0.0].map(percent),
            ["2.1 %", "21 %", "0.0 %"]
        );
        assert_eq!(knob(f64::NAN), "–");
    }
}
