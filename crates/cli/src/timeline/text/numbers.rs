//! Numbers as people read them: three digits that matter, units they use.

pub(crate) use crate::html::number::count;

/// How many decimals a column takes whose largest value is `max`: about five digits in all, at most three behind the
/// point; small values beside large ones keep one.
pub(crate) fn decimals(max: f64) -> usize {
    match max.abs() {
        100_000.0.. => 0,
        100.0.. => 1,
        10.0.. => 2,
        _ => 3,
    }
}

/// Milliseconds on their own, outside a table.
pub(crate) fn ms(ms: f64) -> String {
    let decimals = match ms.abs() {
        100.0.. => 0,
        10.0.. => 1,
        1.0.. => 2,
        _ => 3,
    };
    format!("{ms:.decimals$} ms")
}

/// A duration of any size, given in milliseconds.
pub(crate) fn duration(ms: f64) -> String {
    match ms {
        1e5.. => format!("{:.0} s", ms / 1e3),
        1e3.. => format!("{:.2} s", ms / 1e3),
        _ if ms < 0.0995 => format!("{:.1} µs", ms * 1e3),
        _ => self::ms(ms),
    }
}

/// Bytes in decimal units, as payload is counted.
pub(crate) fn bytes(bytes: f64) -> String {
    match bytes {
        1e9.. => format!("{:.2} GB", bytes / 1e9),
        1e6.. => format!("{:.1} MB", bytes / 1e6),
        1e3.. => format!("{:.1} kB", bytes / 1e3),
        _ => format!("{bytes:.0} B"),
    }
}

/// Bytes in binary units, as thresholds are set.
pub(crate) fn binary_bytes(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let unit = UNITS.into_iter().find(|(size, _)| bytes >= *size);
    let Some((size, name)) = unit else {
        return format!("{bytes} B");
    };
    let hundredths = (bytes as f64 / size as f64 * 100.0).round() / 100.0;
    format!("{hundredths} {name}")
}

/// A share from 0 to 1 in percent.
pub(crate) fn percent(share: f64) -> String {
    match share.abs() {
        0.0 => "0 %".to_owned(),
        ..0.001 => "< 0.1 %".to_owned(),
        ..0.0995 => format!("{:.1} %", share * 100.0),
        _ => format!("{:.0} %", share * 100.0),
    }
}

/// A change in percent, with its sign.
pub(crate) fn change(share: f64) -> String {
    match share.abs() {
        ..0.0995 => format!("{:+.1} %", share * 100.0),
        _ => format!("{:+.0} %", share * 100.0),
    }
}

/// `count` of what is called `one`, in the plural where there is not just one.
pub(crate) fn plural(count: u64, one: &str) -> String {
    let ending = match count {
        1 => "",
        _ if one.ends_with("ch") => "es",
        _ => "s",
    };
    format!("{} {one}{ending}", self::count(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_digits_that_matter() {
        assert_eq!(
            [0.0123, 9.5, 12.345, 123.45, 123_456.7].map(decimals),
            [3, 3, 2, 1, 0]
        );
        assert_eq!(
            [0.0123, 0.5, 12.345, 1234.0, 123_456.0].map(duration),
            ["12.3 µs", "0.500 ms", "12.3 ms", "1.23 s", "123 s"]
        );
        assert_eq!(
            [512.0, 1500.0, 102_228_128.0, 1_340_567_552.0].map(bytes),
            ["512 B", "1.5 kB", "102.2 MB", "1.34 GB"]
        );
        assert_eq!(
            [0, 1024, 3 << 19, 128 << 20, 5 << 30].map(binary_bytes),
            ["0 B", "1 KiB", "1.5 MiB", "128 MiB", "5 GiB"]
        );
        assert_eq!(
            [0.0, 1e-5, 0.021, 0.5, 1.0].map(percent),
            ["0 %", "< 0.1 %", "2.1 %", "50 %", "100 %"]
        );
        assert_eq!([-0.021, 0.5].map(change), ["-2.1 %", "+50 %"]);
        assert_eq!(
            [0, 999, 1000, 1_234_567].map(count),
            ["0", "999", "1,000", "1,234,567"]
        );
        let plurals = [plural(1, "step"), plural(2000, "step"), plural(0, "batch")];
        assert_eq!(plurals, ["1 step", "2,000 steps", "0 batches"]);
    }
}
