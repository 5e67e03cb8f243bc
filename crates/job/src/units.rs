//! Formats quantities as text: numbers, counts, times, sizes, shares and changes.
//!
//! Sizes use powers of 1,024, the unit in which thresholds are set (KiB, MiB). Rates are decimal
//! (GB/s), as in the specifications of networks. A value that is not finite is formatted as a dash.
//! The minus sign is `−`.

/// Text for a missing number.
pub const NONE: &str = "–";

/// Formats a number with about three significant digits: 0.0123, 1.23, 12.3, 1,234.
pub fn digits(value: f64) -> String {
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

/// Formats a number with three significant digits without trailing zeros, as on an axis: 0.5, 20,
/// 1,000.
pub fn short(value: f64) -> String {
    without_zeros(digits(value))
}

/// Formats the value of a setting with four significant digits, without trailing zeros: 0.0625,
/// 37.27, 128.
pub fn setting(value: f64) -> String {
    let magnitude = match value.abs() {
        v if v > 0.0 && v.is_finite() => v.log10().floor() as i32,
        _ => 0,
    };
    without_zeros(fixed(value, (3 - magnitude).clamp(0, 9) as usize)).replace(',', "")
}

fn without_zeros(text: String) -> String {
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// Formats a number with this many decimals, and a comma between thousands.
pub fn fixed(value: f64, decimals: usize) -> String {
    if !value.is_finite() {
        return NONE.to_owned();
    }
    let text = format!("{:.decimals$}", value.abs());
    let (whole, fraction) = text.split_at(text.find('.').unwrap_or(text.len()));
    let minus = value < 0.0 && text.bytes().any(|b| (b'1'..=b'9').contains(&b));
    format!(
        "{}{}{fraction}",
        if minus { "−" } else { "" },
        grouped(whole)
    )
}

/// Returns the decimals for a column in which the largest value shows three or four digits.
pub fn decimals(values: impl IntoIterator<Item = f64>) -> usize {
    let finite = values.into_iter().filter(|value| value.is_finite());
    match finite.fold(0.0, |most: f64, value| most.max(value.abs())) {
        v if v >= 1000.0 => 0,
        v if v >= 100.0 => 1,
        v if v >= 1.0 => 2,
        _ => 3,
    }
}

/// Formats an integer with a comma between thousands.
pub fn count(value: u64) -> String {
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

/// Formats a count with its noun: `1 rank`, `1,200 ranks`, `2 batches`.
pub fn counted(n: u64, noun: &str) -> String {
    let ending = match n {
        1 => "",
        _ if noun.ends_with("ch") => "es",
        _ => "s",
    };
    format!("{} {noun}{ending}", count(n))
}

/// Formats a time given in milliseconds: `12.3 µs`, `61.2 ms`, `12.3 s`.
pub fn ms(value: f64) -> String {
    match value.abs() {
        v if !v.is_finite() => NONE.to_owned(),
        0.0 => "0 ms".to_owned(),
        v if v < 0.0995 => format!("{} µs", digits(value * 1e3)),
        v if v < 9_999.5 => format!("{} ms", digits(value)),
        _ => format!("{} s", digits(value / 1e3)),
    }
}

/// Formats a longer duration, such as a waiting time, given in seconds: `3.2 s`, `6 min 12 s`, `1 h
/// 6 min`.
pub fn duration(seconds: f64) -> String {
    match seconds {
        s if !s.is_finite() => return NONE.to_owned(),
        s if s < 10.0 => return format!("{:.1} s", s.max(0.0)),
        _ => {}
    }
    let whole = seconds.round() as u64;
    match (whole / 3600, whole / 60 % 60, whole % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, 0) => format!("{minutes} min"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

/// Formats a size in bytes: `512 B`, `97.5 MiB`.
pub fn bytes(value: u64) -> String {
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

/// Formats a share from 0 to 1 in percent: `0.0 %`, `2.1 %`, `26 %`.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent.abs() {
        p if !p.is_finite() => NONE.to_owned(),
        p if p >= 9.95 => format!("{} %", fixed(percent, 0)),
        _ => format!("{} %", fixed(percent, 1)),
    }
}

/// Formats a change, given as a share, in percent with its sign: `+2.1 %`, `−21.3 %`, `+150 %`; no
/// change is `0.0 %`.
pub fn change(share: f64) -> String {
    let percent = share * 100.0;
    let decimals = usize::from(percent.abs() < 99.95);
    match fixed(percent, decimals) {
        text if !percent.is_finite() => text,
        text if percent > 0.0 && text != "0.0" => format!("+{text} %"),
        text => format!("{text} %"),
    }
}

/// Formats the ends of a range of changes, which share their unit: `−2.1 to +3.0 %`.
pub fn changes(low: f64, high: f64) -> String {
    format!("{} to {}", change(low).trim_end_matches(" %"), change(high))
}

/// Formats a change with its interval: `−20.0 % (−21.3 to −18.7 %)`.
pub fn change_within(share: f64, [low, high]: [f64; 2]) -> String {
    format!("{} ({})", change(share), changes(low, high))
}

/// Formats a list for a sentence: `a, b and c`.
pub fn list<S: AsRef<str>>(items: &[S]) -> String {
    let items: Vec<&str> = items.iter().map(AsRef::as_ref).collect();
    match items.split_last() {
        None => String::new(),
        Some((only, [])) => (*only).to_owned(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
    }
}

/// Converts the first letter to upper case, for the start of a sentence.
pub fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map(|first| first.to_uppercase().chain(letters).collect())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T>(format: impl Fn(T) -> String, table: impl IntoIterator<Item = (T, &'static str)>) {
        for (value, text) in table {
            assert_eq!(format(value), text);
        }
    }

    #[test]
    fn numbers_have_three_digits() {
        check(
            digits,
            [
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
            ],
        );
        assert_eq!(fixed(-0.001, 2), "0.00");
        check(
            short,
            [(0.5, "0.5"), (20.0, "20"), (1000.0, "1,000"), (0.0, "0")],
        );
        check(
            setting,
            [
                (14.5041, "14.5"),
                (37.2728, "37.27"),
                (0.0625, "0.0625"),
                (0.00123, "0.00123"),
                (4096.0, "4096"),
                (f64::NAN, "–"),
            ],
        );
        assert_eq!(decimals([0.5, 150.0, f64::NAN]), 1);
        assert_eq!(decimals([]), 3);
    }

    #[test]
    fn times_and_sizes_choose_their_unit() {
        check(
            ms,
            [
                (0.0, "0 ms"),
                (0.0123, "12.3 µs"),
                (0.5, "0.500 ms"),
                (61.25, "61.2 ms"),
                (12_345.0, "12.3 s"),
                (f64::INFINITY, "–"),
            ],
        );
        check(
            duration,
            [
                (3.21, "3.2 s"),
                (59.6, "1 min"),
                (372.4, "6 min 12 s"),
                (4000.0, "1 h 6 min"),
                (f64::NAN, "–"),
            ],
        );
        check(
            bytes,
            [
                (0, "0 B"),
                (1023, "1023 B"),
                (1024, "1 KiB"),
                (3 << 19, "1.50 MiB"),
                (102_228_128, "97.5 MiB"),
                (67_108_864, "64 MiB"),
                (u64::MAX, "16,384 PiB"),
            ],
        );
    }

    #[test]
    fn shares_changes_and_counts() {
        check(
            percent,
            [
                (0.256, "26 %"),
                (0.0123, "1.2 %"),
                (0.0, "0.0 %"),
                (-0.021, "−2.1 %"),
                (f64::NAN, "–"),
            ],
        );
        check(
            change,
            [
                (0.0213, "+2.1 %"),
                (-0.213, "−21.3 %"),
                (1.5, "+150 %"),
                (0.0001, "0.0 %"),
                (-0.0001, "0.0 %"),
                (f64::INFINITY, "–"),
            ],
        );
        assert_eq!(changes(-0.045, 0.006), "−4.5 to +0.6 %");
        assert_eq!(
            [counted(1, "rank"), counted(1200, "rank")],
            ["1 rank", "1,200 ranks"]
        );
        assert_eq!(counted(0, "batch"), "0 batches");
    }

    #[test]
    fn sentences() {
        assert_eq!(
            [list(&["a"]), list(&["a", "b", "c"]), list::<&str>(&[])],
            ["a", "a, b and c", ""]
        );
        assert_eq!([capitalized("élan"), capitalized("")], ["Élan", ""]);
    }
}
