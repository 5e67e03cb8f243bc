//! Numbers as users write them: whole or with a decimal point, with a binary unit.

/// Units of sizes in bytes.
const UNITS: [(&str, f64); 4] = [
    ("KiB", 1024.0),
    ("MiB", 1048576.0),
    ("GiB", 1073741824.0),
    ("TiB", 1099511627776.0),
];
/// Above this, neighbouring whole numbers share one `f64`.
const WHOLE_MOST: f64 = 9007199254740992.0;

/// A number, and whether it was written without a decimal point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Number {
    pub(super) value: f64,
    pub(super) is_whole: bool,
}

impl Number {
    /// Parses `8`, `0.5`, `1e6` or `25MiB`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let unit = UNITS
            .iter()
            .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor)));
        let (digits, factor) = unit.unwrap_or((text, 1.0));
        // Rust also parses "inf", "nan" and "infinity".
        let starts = digits
            .trim_start_matches(['-', '+'])
            .starts_with(|c: char| c.is_ascii_digit() || c == '.');
        let value = digits.parse::<f64>().ok().filter(|_| starts)? * factor;
        let is_whole = !digits.contains('.') && value.fract() == 0.0;
        (value.abs() <= WHOLE_MOST).then_some(Self { value, is_whole })
    }
}

/// Rounds to four significant digits.
pub(super) fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

/// Formats a value without an exponent, which not every program reads.
pub(super) fn text(value: f64) -> String {
    value.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_by_hand() {
        let parse = |text| Number::parse(text).map(|number| (number.value, number.is_whole));
        assert_eq!(parse("25MiB"), Some((26214400.0, true)));
        assert_eq!(parse("1e6"), Some((1e6, true)));
        assert_eq!(parse("1.0"), Some((1.0, false)));
        assert_eq!(parse("-0.5"), Some((-0.5, false)));
        for text in ["", "nan", "inf", "1e400", "x", "1 MiB", "--1"] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(
            (rounded(23.170_47), text(0.000_000_1), text(5e8)),
            (23.17, "0.0000001".into(), "500000000".into())
        );
    }
}
