//! Parsers of values: lists such as `0,1,4`, `0.5..25` or `1..128:8`, whole numbers, times.

use std::time::Duration;

use jiff::SignedDuration;

/// Number of values of a range without a count.
const COUNT_DEFAULT: usize = 8;
/// Most values of a list.
const COUNT_MOST: usize = 64;

/// Limits of the values of a list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Smallest and largest value.
    pub(super) bounds: (f64, f64),
    /// Unit of the values, which the list does not contain.
    pub(super) unit: &'static str,
}

/// Values of a list.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct List {
    /// Distinct values, ascending.
    pub(super) values: Vec<f64>,
    /// Values that the list contained more than once.
    pub(super) repeated: Vec<f64>,
}

/// Parses a list; the values are distinct and ascending.
///
/// # Errors
/// A sentence that names the problem: not numeric, out of range, reversed, too many values.
pub(super) fn parse(text: &str, limits: Limits) -> Result<List, String> {
    let number = |part: &str| {
        let (part, (least, most)) = (part.trim(), limits.bounds);
        if part.is_empty() {
            return Err(format!("a value is missing in `{text}`"));
        }
        let value = part
            .parse::<f64>()
            .ok()
            .filter(|value| (least..=most).contains(value));
        value.ok_or_else(|| {
            format!(
                "`{part}` is not a number from {least} to {most} ({}, without a unit)",
                limits.unit
            )
        })
    };
    if text.trim().is_empty() {
        let example = "values such as 1,4,16 or a range such as 1..16";
        return Err(format!("the list is empty; give {example}"));
    }
    let mut values = match text.split_once("..") {
        Some((from, rest)) => {
            let (to, count) = match rest.split_once(':') {
                Some((to, count)) => (to, count.trim().parse().ok()),
                None => (rest, Some(COUNT_DEFAULT)),
            };
            let count = count.filter(|count| (2..=COUNT_MOST).contains(count));
            let count =
                count.ok_or_else(|| format!("give from 2 to {COUNT_MOST} values in `{text}`"))?;
            let (from, to): (f64, f64) = (number(from)?, number(to)?);
            if from <= 0.0 || to <= from {
                return Err(format!(
                    "`{text}` is not a range: its ends must be above 0 and in order, because its values are in geometric progression"
                ));
            }
            let factor = (to / from).ln() / (count - 1) as f64;
            let inner = (1..count - 1).map(|i| rounded(from * (factor * i as f64).exp()));
            [from].into_iter().chain(inner).chain([to]).collect()
        }
        None => text.split(',').map(number).collect::<Result<Vec<_>, _>>()?,
    };
    values.sort_by(f64::total_cmp);
    let equal = values.windows(2).filter(|pair| pair[0] == pair[1]);
    let mut repeated: Vec<f64> = equal.map(|pair| pair[0]).collect();
    repeated.dedup();
    values.dedup();
    if values.len() > COUNT_MOST {
        let count = values.len();
        return Err(format!(
            "{count} values are too many; give {COUNT_MOST} at most"
        ));
    }
    Ok(List { values, repeated })
}

/// Parser of an argument that is a whole number from `least` to `most`.
pub(super) fn whole<T: TryFrom<u64> + Clone + Send + Sync + 'static>(
    least: u64,
    most: u64,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text.trim().parse::<u64>().ok();
        number
            .filter(|number| (least..=most).contains(number))
            .and_then(|number| T::try_from(number).ok())
            .ok_or_else(|| format!("give a whole number from {least} to {most}"))
    }
}

/// Parses a time with its unit; it must be above 0.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    let duration = text.trim().parse::<SignedDuration>().ok();
    duration
        .and_then(|duration| Duration::try_from(duration).ok())
        .filter(|duration| !duration.is_zero())
        .ok_or_else(|| {
            format!("`{text}` is not a time; give a number with its unit, such as 90s, 10m or 1.5h")
        })
}

/// Rounds to three digits: no setting needs more precision.
fn rounded(value: f64) -> f64 {
    let unit = 10f64.powf(value.log10().floor() - 2.0);
    (value / unit).round() * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_ranges() {
        let limits = Limits {
            bounds: (0.0, 1000.0),
            unit: "MiB",
        };
        let parse = |text| super::parse(text, limits);
        let list = parse("4, 0,1,4,0,4").unwrap();
        assert_eq!(
            (list.values, list.repeated),
            (vec![0.0, 1.0, 4.0], vec![0.0, 4.0])
        );
        assert_eq!(parse("1..100:3").unwrap().values, [1.0, 10.0, 100.0]);
        let eight = parse("1..128").unwrap();
        assert_eq!(eight.values, [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0]);
        assert!(eight.repeated.is_empty());
        for empty in ["", " "] {
            assert!(parse(empty).unwrap_err().contains("the list is empty"));
        }
    }

    #[test]
    fn a_time_has_a_unit() {
        for (text, seconds) in [("10m", 600), ("90s", 90), ("1.5h", 5400), ("1h 30m", 5400)] {
            assert_eq!(time(text), Ok(Duration::from_secs(seconds)));
        }
    }
}
