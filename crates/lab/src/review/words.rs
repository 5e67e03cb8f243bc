//! Formats numbers for sentences: few digits, no trailing zeros.

use super::best::Difference;
use crate::gain::{Saved, Sense};
use ronde_job::units;
pub use ronde_job::units::{change as signed, counted, list, short as number};

/// Formats the value of a knob with four significant digits.
pub fn knob(value: f64) -> String {
    rounded(value, 4)
}

/// Formats a share in percent, without sign.
pub fn percent(share: f64) -> String {
    units::percent(share.abs())
}

/// Formats a gain, as a share of the step time of `whom`: `20 % faster than the default (19 to 21
/// %)`, `… slower …` or `as fast as …`; without `whom`, `20 % faster (19 to 21 %)`.
pub fn faster(gain: &Difference, whom: Option<&str>) -> String {
    let saved = Saved {
        share: gain.mean,
        interval: Some([gain.low, gain.high]),
    };
    let amount = percent(gain.mean);
    let (words, than) = match saved.sense() {
        Sense::Less => (format!("{amount} faster"), " than "),
        Sense::Same => ("as fast".to_owned(), " as "),
        Sense::More => (format!("{amount} slower"), " than "),
    };
    let whom = whom.map_or_else(String::new, |whom| than.to_owned() + whom);
    let range = saved.range("faster", "slower", percent);
    format!("{words}{whom} ({})", range.unwrap_or_default())
}

fn rounded(value: f64, digits: i32) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    let magnitude = if value == 0.0 {
        0
    } else {
        value.abs().log10().floor() as i32
    };
    let decimals = (digits - 1 - magnitude).clamp(0, 9) as usize;
    let text = format!("{value:.decimals$}");
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

    #[test]
    fn a_gain_below_nothing_is_slower() {
        let of = |mean, low, high| faster(&Difference { mean, low, high }, Some("the default"));
        assert_eq!(
            of(0.2, 0.19, 0.21),
            "20 % faster than the default (19 to 21 %)"
        );
        assert_eq!(
            of(-0.02, -0.045, 0.006),
            "2.0 % slower than the default (between 4.5 % slower and 0.6 % faster)"
        );
        assert_eq!(
            of(-0.0002, -0.01, 0.01),
            "as fast as the default (between 1.0 % slower and 1.0 % faster)"
        );
        let gain = Difference {
            mean: -0.02,
            low: -0.03,
            high: -0.01,
        };
        assert_eq!(faster(&gain, None), "2.0 % slower (1.0 to 3.0 %)");
    }
}
