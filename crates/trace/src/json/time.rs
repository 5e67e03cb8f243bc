//! Parser for times: decimal microseconds of any length.

/// Largest time in nanoseconds, so that the difference of any two fits.
pub(crate) const NS_MAX: i64 = i64::MAX / 2;

/// Converts a decimal number of microseconds to nanoseconds, rounded; `None` if it is not a number
/// or out of range.
pub(crate) fn us_as_ns(characters: &[u8]) -> Option<i64> {
    let (negative, digits) = match characters.split_first()? {
        (b'-', rest) => (true, rest),
        _ => (false, characters),
    };
    // More digits than a time has: out of range, or a float with an exponent.
    if digits.is_empty() || digits.len() > 40 {
        return None;
    }
    let mut ns: i64 = 0;
    let mut decimals: Option<u32> = None;
    for &byte in digits {
        match (byte, decimals) {
            (b'0'..=b'9', Some(3)) => {
                ns += i64::from(byte >= b'5');
                decimals = Some(4);
            }
            (b'0'..=b'9', Some(4..)) => {}
            (b'0'..=b'9', _) => {
                ns = ns.checked_mul(10)?.checked_add(i64::from(byte - b'0'))?;
                decimals = decimals.map(|decimals| decimals + 1);
            }
            (b'.', None) => decimals = Some(0),
            _ => return us_as_ns_inexact(characters),
        }
    }
    let missing = 3_u32.saturating_sub(decimals.unwrap_or(0));
    let ns = ns.checked_mul(10_i64.pow(missing))?;
    (ns <= NS_MAX).then_some(if negative { -ns } else { ns })
}

/// Handles numbers with an exponent, a sign or surrounding white space.
#[cold]
fn us_as_ns_inexact(characters: &[u8]) -> Option<i64> {
    let us: f64 = std::str::from_utf8(characters).ok()?.trim().parse().ok()?;
    let ns = (us * 1e3).round();
    (ns.abs() <= NS_MAX as f64 * 0.999).then_some(ns as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rounded_to_nanoseconds() {
        let ns = |text: &str| us_as_ns(text.as_bytes());
        assert_eq!(ns("25702"), Some(25_702_000));
        assert_eq!(ns("1682725898236567.123"), Some(1_682_725_898_236_567_123));
        assert_eq!(ns("1.5"), Some(1_500));
        assert_eq!(ns("0.0004"), Some(0));
        assert_eq!(ns("0.00051234"), Some(1));
        assert_eq!(ns("-3.25"), Some(-3_250));
        assert_eq!(ns("1e3"), Some(1_000_000));
        assert_eq!(ns(" 12 "), Some(12_000));
        assert_eq!(ns("+1"), Some(1_000));
        for none in [
            "",
            "-",
            "NaN",
            "Infinity",
            "-Infinity",
            "1e300",
            "99999999999999999999",
            "x",
            "1.2.3",
        ] {
            assert_eq!(ns(none), None, "{none}");
        }
        assert_eq!(ns("4611686018427387"), Some(4_611_686_018_427_387_000));
        assert_eq!(
            ns("4611686018427388"),
            None,
            "the difference of two would overflow"
        );
    }
}
