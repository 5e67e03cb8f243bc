//! Lists of values: `0,1,4` or `0.5..25` or `1..128:8`.

/// Values of a range that does not say how many.
const COUNT_DEFAULT: usize = 8;
/// Most values of a list.
const COUNT_MOST: usize = 64;

/// The values, ascending, each once.
///
/// # Errors
/// A sentence that says what is wrong: no number, out of `bounds`, reversed, too many.
pub(super) fn parse(text: &str, bounds: (f64, f64)) -> Result<Vec<f64>, String> {
    let number = |part: &str| {
        let value = part
            .trim()
            .parse::<f64>()
            .ok()
            .filter(|value| (bounds.0..=bounds.1).contains(value));
        value.ok_or_else(|| format!("`{}` is no number from {} to {}", part.trim(), bounds.0, bounds.1))
    };
    let mut values = match text.split_once("..") {
        Some((from, rest)) => {
            let (to, count) = match rest.split_once(':') {
                Some((to, count)) => (
                    to,
                    count
                        .trim()
                        .parse()
                        .ok()
                        .filter(|count| (2..=COUNT_MOST).contains(count)),
                ),
                None => (rest, Some(COUNT_DEFAULT)),
            };
            let count = count.ok_or_else(|| format!("give from 2 to {COUNT_MOST} values in `{text}`"))?;
            let (from, to) = (number(from)?, number(to)?);
            if from <= 0.0 || to <= from {
                return Err(format!(
                    "`{text}` is no range: its ends have to be above 0 and in order, since its values are a factor apart"
                ));
            }
            let factor = (to / from).ln() / (count - 1) as f64;
            let inner = (1..count - 1).map(|i| rounded(from * (factor * i as f64).exp()));
            [from].into_iter().chain(inner).chain([to]).collect()
        }
        None => text.split(',').map(number).collect::<Result<Vec<_>, _>>()?,
    };
    values.sort_by(f64::total_cmp);
    values.dedup();
    if values.len() > COUNT_MOST {
        return Err(format!(
            "{} values are too many; give {COUNT_MOST} at most",
            values.len()
        ));
    }
    Ok(values)
}

/// Three digits: nobody sets a knob more finely.
fn rounded(value: f64) -> f64 {
    let unit = 10f64.powf(value.log10().floor() - 2.0);
    (value / unit).round() * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_ranges() {
        let parse = |text| parse(text, (0.0, 1000.0));
        assert_eq!(parse("4, 0,1,4").unwrap(), [0.0, 1.0, 4.0]);
        assert_eq!(parse("1..100:3").unwrap(), [1.0, 10.0, 100.0]);
        let eight = parse("1..128").unwrap();
        assert_eq!((eight.len(), eight[1], eight[7]), (8, 2.0, 128.0));
        for (bad, what) in [
            ("", "no number"),
            ("1,x", "`x` is no number from 0 to 1000"),
            ("-1", "from 0"),
            ("nan", "no number"),
            ("2000", "to 1000"),
            ("4..1", "in order"),
            ("0..1", "above 0"),
            ("1..2:1", "from 2 to 64"),
            ("1..2:99", "from 2 to 64"),
        ] {
            let error = parse(bad).unwrap_err();
            assert!(error.contains(what), "{bad}: {error}");
        }
    }
}
