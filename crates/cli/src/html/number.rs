//! Numbers for people: few digits, the unit that fits. What is no number is a dash, never `NaN`.

/// What stands where there is no number.
const NONE: &str = "–";

/// About three digits that count: 0.0123, 1.23, 12.3, 1,234.
pub(crate) fn digits(value: f64) -> String {
    if !value.is_finite() {
        return NONE.to_owned();
    }
    let decimals = match value.abs() {
        0.0 => 0,
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        v if v >= 0.9995 => 2,
        v if v >= 0.09995 => 3,
        _ => 4,
    };
    fixed(value, decimals)
}

/// The same for a round number, such as an axis has: no zeros after the point that say nothing.
pub(crate) fn short(value: f64) -> String {
    let text = digits(value);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// With so many decimals, and a comma between thousands.
pub(crate) fn fixed(value: f64, decimals: usize) -> String {
    if !value.is_finite() {
        return NONE.to_owned();
    }
    let text = format!("{:.decimals$}", value.abs());
    let (whole, fraction) = text.split_at(text.find('.').unwrap_or(text.len()));
    let minus = value < 0.0 && text.bytes().any(|b| (b'1'..=b'9').contains(&b));
    format!("{}{}{fraction}", if minus { "−" } else { "" }, grouped(whole))
}

/// A number of things.
pub(crate) fn count(value: u64) -> String {
    grouped(&value.to_string())
}

fn grouped(whole: &str) -> String {
    let mut text = String::with_capacity(whole.len() + whole.len() / 3);
    for (i, c) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(c);
    }
    text
}

/// A time given in milliseconds.
pub(crate) fn ms(value: f64) -> String {
    match value.abs() {
        v if !v.is_finite() => NONE.to_owned(),
        0.0 => "0 ms".to_owned(),
        v if v < 0.0995 => format!("{} µs", digits(value * 1e3)),
        v if v < 9_999.5 => format!("{} ms", digits(value)),
        _ => format!("{} s", digits(value / 1e3)),
    }
}

/// A share, 0 to 1.
pub(crate) fn percent(share: f64) -> String {
    match share.abs() * 100.0 {
        p if !p.is_finite() => NONE.to_owned(),
        p if p >= 9.95 || p == 0.0 => format!("{} %", fixed(share * 100.0, 0)),
        _ => format!("{} %", fixed(share * 100.0, 1)),
    }
}

/// A size, in powers of 1,024.
pub(crate) fn bytes(value: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if value < 1024 {
        return format!("{value} B");
    }
    let mut scaled = value as f64 / 1024.0;
    let mut unit = 0;
    while scaled >= 1023.5 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    let text = if scaled.fract() == 0.0 {
        fixed(scaled, 0)
    } else {
        digits(scaled)
    };
    format!("{text} {}", UNITS[unit])
}

/// "1 rank", "2 ranks".
pub(crate) fn counted(n: u64, thing: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{} {}{plural}", count(n), thing)
}

/// How many decimals a column needs for its greatest value to show three or four digits.
pub(crate) fn decimals(values: impl IntoIterator<Item = f64>) -> usize {
    match values
        .into_iter()
        .filter(|v| v.is_finite())
        .fold(0.0, |a: f64, v| a.max(v.abs()))
    {
        v if v >= 1000.0 => 0,
        v if v >= 100.0 => 1,
        v if v >= 1.0 => 2,
        _ => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_count() {
        for (value, text) in [
            (0.0, "0"),
            (0.01234, "0.0123"),
            (0.1234, "0.123"),
            (1.234, "1.23"),
            (9.996, "10.0"),
            (12.34, "12.3"),
            (123.4, "123"),
            (1_234_567.0, "1,234,567"),
            (-1234.5, "−1,234"),
            (f64::NAN, "–"),
            (f64::NEG_INFINITY, "–"),
        ] {
            assert_eq!(digits(value), text);
        }
        assert_eq!(fixed(-0.001, 2), "0.00");
        assert_eq!([0.5, 20.0, 1000.0, 0.0].map(short), ["0.5", "20", "1,000", "0"]);
    }

    #[test]
    fn times_choose_their_unit() {
        for (value, text) in [
            (0.0, "0 ms"),
            (0.0123, "12.3 µs"),
            (0.5, "0.500 ms"),
            (61.25, "61.2 ms"),
            (12_345.0, "12.3 s"),
        ] {
            assert_eq!(ms(value), text);
        }
        assert_eq!(ms(f64::INFINITY), "–");
    }

    #[test]
    fn sizes_choose_their_unit() {
        for (value, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (102_228_128, "97.5 MiB"),
            (67_108_864, "64 MiB"),
            (u64::MAX, "16,384 PiB"),
        ] {
            assert_eq!(bytes(value), text);
        }
    }

    #[test]
    fn shares_and_counts() {
        assert_eq!(percent(0.256), "26 %");
        assert_eq!(percent(0.0123), "1.2 %");
        assert_eq!(percent(f64::NAN), "–");
        assert_eq!(counted(1, "rank"), "1 rank");
        assert_eq!(counted(1200, "rank"), "1,200 ranks");
        assert_eq!(decimals([0.5, 150.0, f64::NAN]), 1);
        assert_eq!(decimals([]), 3);
    }
}
