//! Knobs along an axis: their values as columns of a map or as places on a line, by their logarithms, 0 on its own.

use crate::html::chart::Axis;
use crate::html::number;

/// The values of one knob along a side of a picture.
#[derive(Clone, Debug)]
pub(crate) struct AxisValues {
    /// What the knob is called, such as "fusion threshold".
    pub(crate) label: String,
    /// Its unit, such as "MB"; may be empty.
    pub(crate) unit: String,
    /// Ascending, each once. Distances are those of the logarithms; a 0 has its own place at the start.
    pub(crate) values: Vec<f64>,
}

/// Between the place of 0 and the logarithms, in units.
const BREAK: f64 = 10.0;

/// A band narrower than this share of the mean has no room for what the others say; then all are equally wide.
const NARROWEST: f64 = 0.45;

impl AxisValues {
    /// Label and unit, as an axis says them.
    pub(super) fn name(&self) -> String {
        named(&self.label, &self.unit)
    }

    /// Beginning and width of the band of each value, on a side that is so long.
    pub(super) fn bands(&self, length: f64) -> Vec<(f64, f64)> {
        let values = &self.values;
        let (zero, positive) = split(values);
        let widths = ratio_widths(positive).unwrap_or_else(|| vec![1.0; values.len() - zero]);
        let mean = mean(&widths);
        // 0 is as wide as the others are, and apart from them.
        let apart = if zero == 1 && !positive.is_empty() {
            BREAK
        } else {
            0.0
        };
        let total = widths.iter().sum::<f64>() + zero as f64 * mean;
        let scale = (length - apart).max(0.0) / total.max(f64::MIN_POSITIVE);
        let mut from = 0.0;
        let mut bands = Vec::with_capacity(values.len());
        for (i, width) in std::iter::repeat_n(mean, zero).chain(widths).enumerate() {
            bands.push((from, width * scale));
            from += width * scale + if i + 1 == zero { apart } else { 0.0 };
        }
        bands
    }

    /// The values as places on a side that is so long.
    pub(super) fn line(&self, length: f64) -> Line {
        let (zero, positive) = split(&self.values);
        let start = match zero {
            1 if positive.is_empty() => length,
            1 => (length * 0.08).clamp(24.0, 48.0).min(length / 2.0),
            _ => 0.0,
        };
        let from = positive.first().copied().unwrap_or(1.0);
        let to = positive.last().copied().filter(|to| *to > from);
        let axis = match self.unit.as_str() {
            "MB" | "MiB" | "KB" | "KiB" | "B" => Axis::powers_of_two,
            _ => Axis::decades,
        };
        let mut axis = match to {
            Some(to) => axis("", from, to, 12, tick),
            // One value is no range: it stands in the middle of one.
            None => axis("", from / 2.0, from * 2.0, 0, tick),
        };
        if axis.ticks.len() < 2 {
            axis.ticks = few_ticks(from, to);
        }
        Line {
            zero: (zero == 1).then_some(start),
            start: if zero == 1 && !positive.is_empty() {
                start + BREAK
            } else {
                start
            },
            length,
            axis,
        }
    }
}

/// An axis by logarithms, in units, with a strip for 0 before it if there is one.
#[derive(Clone, Debug)]
pub(super) struct Line {
    /// How wide the strip of 0 is.
    pub(super) zero: Option<f64>,
    /// Where the logarithms begin.
    pub(super) start: f64,
    /// Where they end.
    pub(super) length: f64,
    axis: Axis,
}

impl Line {
    /// Where a value lies; what is off the axis lies at its end.
    pub(super) fn at(&self, value: f64) -> f64 {
        match self.zero {
            Some(zero) if value <= 0.0 => zero / 2.0,
            _ => self.start + self.axis.at(value) * (self.length - self.start),
        }
    }

    /// Which values are named, where, and how.
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        let zero = self.zero.map(|zero| (zero / 2.0, tick(0.0)));
        let named = self
            .axis
            .ticks
            .iter()
            .map(|(value, name)| (self.at(*value), name.clone()));
        zero.into_iter().chain(named).collect()
    }
}

/// How many of the values are 0 and have their own place (none or one), and the others.
fn split(values: &[f64]) -> (usize, &[f64]) {
    let zero = usize::from(values.first() == Some(&0.0));
    (zero, &values[zero..])
}

/// How much of a logarithmic axis each value has to itself: half of the way to each of its neighbours. None if that
/// cannot be drawn.
fn ratio_widths(values: &[f64]) -> Option<Vec<f64>> {
    let positive = values.iter().all(|v| *v > 1e-300 && v.is_finite());
    if values.len() < 2 || !positive {
        return None;
    }
    let steps: Vec<f64> = values
        .windows(2)
        .map(|pair| pair[1].ln() - pair[0].ln())
        .collect();
    let step = |i: usize| steps[i.min(steps.len() - 1)];
    let widths: Vec<f64> = (0..values.len())
        .map(|i| (step(i.saturating_sub(1)) + step(i)) / 2.0)
        .collect();
    let narrowest = widths.iter().copied().fold(f64::INFINITY, f64::min);
    (narrowest > 0.0 && narrowest >= NARROWEST * mean(&widths)).then_some(widths)
}

fn mean(widths: &[f64]) -> f64 {
    match widths.len() {
        0 => 1.0,
        n => widths.iter().sum::<f64>() / n as f64,
    }
}

/// Ticks of a range that holds hardly any round number.
fn few_ticks(from: f64, to: Option<f64>) -> Vec<(f64, String)> {
    let Some(to) = to else {
        return vec![(from, tick(from))];
    };
    let ticks = linear(from, to, 4).ticks;
    if ticks.len() >= 2 {
        ticks
    } else {
        [from, to].map(|v| (v, tick(v))).to_vec()
    }
}

/// From `from` to `to`, about so many round values named, all with as many decimals as tell them apart.
pub(super) fn linear(from: f64, to: f64, ticks: usize) -> Axis {
    let mut axis = Axis::linear("", from, to, ticks, tick);
    let step = match axis.ticks.as_slice() {
        [first, second, ..] => second.0 - first.0,
        _ => return axis,
    };
    // A step is 1, 2 or 5 times a power of ten.
    let decimals = (-step.log10() - 1e-6).ceil().max(0.0) as usize;
    if decimals <= 6 && axis.ticks.iter().all(|(value, _)| value.abs() < 1e6) {
        for (value, name) in &mut axis.ticks {
            *name = number::fixed(*value, decimals);
        }
    }
    axis
}

/// A label and the unit behind it.
pub(super) fn named(label: &str, unit: &str) -> String {
    match unit {
        "" => label.to_owned(),
        unit => format!("{label}, {unit}"),
    }
}

/// A value as an axis names it: 0.5, 1, 2.5, 128, 1e-5.
pub(super) fn tick(value: f64) -> String {
    match value.abs() {
        v if v != 0.0 && v.is_finite() && !(1e-3..1e6).contains(&v) => {
            // Rounded before it is written, so that no zeros trail.
            let rounded: f64 = format!("{value:.2e}").parse().unwrap_or(value);
            format!("{rounded:e}").replace('-', "−")
        }
        _ => number::short(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(values: &[f64]) -> AxisValues {
        AxisValues {
            label: "threshold".into(),
            unit: "MB".into(),
            values: values.to_vec(),
        }
    }

    #[test]
    fn bands_are_as_wide_as_ratios_are() {
        // 1 to 4 and 4 to 16 are two doublings each, 16 to 32 is one: the bands are 2, 2, 1.5 and 1 of 6.5.
        let bands = of(&[1.0, 4.0, 16.0, 32.0]).bands(650.0);
        let expected = [(0.0, 200.0), (200.0, 200.0), (400.0, 150.0), (550.0, 100.0)];
        for (band, expected) in bands.iter().zip(expected) {
            assert!(
                (band.0 - expected.0).abs() < 1e-9 && (band.1 - expected.1).abs() < 1e-9,
                "{bands:?}"
            );
        }
        // 64, 65 would leave no room for what stands in them.
        assert!(
            of(&[1.0, 64.0, 65.0])
                .bands(300.0)
                .iter()
                .all(|(_, width)| (width - 100.0).abs() < 1e-9)
        );
    }

    #[test]
    fn zero_stands_alone() {
        assert_eq!(
            of(&[0.0, 1.0, 2.0]).bands(310.0),
            [(0.0, 100.0), (110.0, 100.0), (210.0, 100.0)]
        );
        assert_eq!(of(&[0.0]).bands(310.0), [(0.0, 310.0)]);
        assert!(of(&[]).bands(310.0).is_empty());
        let line = of(&[0.0, 1.0, 2.0, 4.0]).line(600.0);
        assert_eq!((line.at(0.0), line.at(1.0), line.at(4.0)), (24.0, 58.0, 600.0));
        assert!((line.at(2.0) - 329.0).abs() < 1e-9);
        let names: Vec<_> = line.ticks().into_iter().map(|(_, name)| name).collect();
        assert_eq!(names, ["0", "1", "2", "4"]);
    }

    #[test]
    fn ticks_are_written_as_people_do() {
        assert_eq!(
            [0.0, 0.5, 1.0, 2.5, 128.0, 1000.0, 1e-5, -0.25, 2.5e7].map(tick),
            ["0", "0.5", "1", "2.5", "128", "1,000", "1e−5", "−0.25", "2.5e7"]
        );
        assert_eq!(of(&[]).name(), "threshold, MB");
    }

    #[test]
    fn round_values_are_told_apart() {
        let names = |from, to| {
            linear(from, to, 4)
                .ticks
                .into_iter()
                .map(|(_, name)| name)
                .collect::<Vec<_>>()
        };
        assert_eq!(names(39.97, 40.01), ["39.97", "39.98", "39.99", "40.00", "40.01"]);
        assert_eq!(names(0.0, 2.0), ["0.0", "0.5", "1.0", "1.5", "2.0"]);
        assert_eq!(names(0.0, 4e7), ["0", "1e7", "2e7", "3e7", "4e7"]);
    }

    proptest! {
        #[test]
        fn bands_follow_one_another_within_the_side(values in prop::collection::vec(any::<f64>(), 0..9), length in 10f64..1000.0) {
            let bands = of(&values).bands(length);
            prop_assert_eq!(bands.len(), values.len());
            let mut end = 0.0;
            for (from, width) in bands {
                prop_assert!(from >= end - 1e-6 && width >= 0.0 && from + width <= length + 1e-6);
                end = from + width;
            }
        }

        #[test]
        fn any_value_has_a_place(values in prop::collection::vec(any::<f64>(), 0..9), value in any::<f64>()) {
            let line = of(&values).line(300.0);
            prop_assert!((0.0..=300.0).contains(&line.at(value)));
            prop_assert!(line.ticks().len() < 40);
        }
    }
}
