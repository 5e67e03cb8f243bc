//! An axis: from values to places, and the ticks a reader expects.

/// Which way values spread over the axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scale {
    /// Equal distances for equal differences.
    Linear,
    /// Equal distances for equal ratios.
    Log,
}

/// An axis from its least to its greatest value.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    /// What is on it, with its unit.
    pub(crate) label: String,
    /// Values that are labelled, and how.
    pub(crate) ticks: Vec<(f64, String)>,
    scale: Scale,
    from: f64,
    to: f64,
}

impl Axis {
    /// From `from` to `to`, ticks at about `ticks` round values. Where there is no such range, one is made.
    pub(crate) fn linear(
        label: &str,
        from: f64,
        to: f64,
        ticks: usize,
        name: impl Fn(f64) -> String,
    ) -> Self {
        let from = if from.is_finite() { from } else { 0.0 };
        let to = if to.is_finite() && to > from {
            to
        } else {
            from + 1.0
        };
        let step = round_step((to - from) / ticks.max(1) as f64);
        // Counted rather than added up, so that a step lost to rounding cannot loop for ever.
        let first = (from / step).ceil();
        let ticks = (0..=2 * ticks.max(1))
            .map(|i| (first + i as f64) * step)
            .take_while(|v| *v <= to + step * 1e-6)
            .map(|v| (v, name(v)))
            .collect();
        Axis {
            label: label.to_owned(),
            ticks,
            scale: Scale::Linear,
            from,
            to,
        }
    }

    /// From `from` to `to`, both above zero, with ticks at powers of two: at most about `ticks` of them.
    pub(crate) fn powers_of_two(
        label: &str,
        from: f64,
        to: f64,
        ticks: usize,
        name: impl Fn(f64) -> String,
    ) -> Self {
        let axis = Self::log(label, from, to);
        // A hair of tolerance: the logarithm of a power need not be whole.
        let first = (axis.from.log2() - 1e-9).ceil() as i32;
        let last = (axis.to.log2() + 1e-9).floor() as i32;
        let every = (last - first) / ticks.max(1) as i32 + 1;
        let ticks = (first..=last)
            .filter(|power| power.rem_euclid(every) == 0)
            .map(|power| 2f64.powi(power));
        axis.with_ticks(ticks, name)
    }

    /// From `from` to `to`, both above zero, with ticks at 1, 2, 5, 10, …, at powers of ten, or at fewer of these: at
    /// most about `ticks` of them.
    pub(crate) fn decades(
        label: &str,
        from: f64,
        to: f64,
        ticks: usize,
        name: impl Fn(f64) -> String,
    ) -> Self {
        let axis = Self::log(label, from, to);
        let first = axis.from.log10().floor() as i32;
        let last = axis.to.log10().ceil() as i32;
        let inside = |v: &f64| *v >= axis.from * 0.999 && *v <= axis.to * 1.001;
        let fine: Vec<f64> = (first..=last)
            .flat_map(|power| [1.0, 2.0, 5.0].map(|m| m * 10f64.powi(power)))
            .filter(inside)
            .collect();
        if fine.len() <= ticks {
            return axis.with_ticks(fine, name);
        }
        let every = (last - first) / ticks.max(1) as i32 + 1;
        let coarse = (first..=last)
            .filter(|power| power.rem_euclid(every) == 0)
            .map(|power| 10f64.powi(power));
        let coarse: Vec<f64> = coarse.filter(inside).collect();
        axis.with_ticks(coarse, name)
    }

    fn log(label: &str, from: f64, to: f64) -> Self {
        // Within bounds, so that neither end is lost to infinity and ticks can be counted.
        let from = if (1e-300..1e300).contains(&from) {
            from
        } else {
            1.0
        };
        let to = if to.is_finite() && to > from {
            to
        } else {
            from * 10.0
        };
        Axis {
            label: label.to_owned(),
            ticks: Vec::new(),
            scale: Scale::Log,
            from,
            to,
        }
    }

    fn with_ticks(self, ticks: impl IntoIterator<Item = f64>, name: impl Fn(f64) -> String) -> Self {
        Axis {
            ticks: ticks.into_iter().map(|v| (v, name(v))).collect(),
            ..self
        }
    }

    /// Where a value lies, from 0 to 1; what is off the axis lies at its end.
    pub(crate) fn at(&self, value: f64) -> f64 {
        let at = match self.scale {
            Scale::Linear => (value - self.from) / (self.to - self.from),
            Scale::Log => (value.max(f64::MIN_POSITIVE) / self.from).ln() / (self.to / self.from).ln(),
        };
        if at.is_finite() { at.clamp(0.0, 1.0) } else { 0.0 }
    }

    /// The value that lies there.
    pub(crate) fn value(&self, at: f64) -> f64 {
        match self.scale {
            Scale::Linear => self.from + at * (self.to - self.from),
            Scale::Log => self.from * (self.to / self.from).powf(at),
        }
    }
}

/// The next of 1, 2, 5, 10, 20, … at or above.
fn round_step(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    let round = [1.0, 2.0, 5.0]
        .into_iter()
        .find(|m| m * power >= step * 0.999)
        .unwrap_or(10.0);
    round * power
}

/// A place as a percentage, as SVG wants it.
pub(crate) fn percentage(at: f64) -> String {
    let at = if at.is_finite() { at * 100.0 } else { 0.0 };
    let text = format!("{at:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{}%", if text == "-0" { "0" } else { text })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, name)| name.as_str()).collect()
    }

    #[test]
    fn ticks_are_round() {
        let axis = Axis::linear("ms", 0.0, 73.0, 5, |v| format!("{v}"));
        assert_eq!(names(&axis), ["0", "20", "40", "60"]);
        assert_eq!(
            (axis.at(36.5), axis.at(100.0), axis.at(f64::NAN)),
            (0.5, 1.0, 0.0)
        );
        let axis = Axis::decades("bytes", 1.0, 1e6, 4, |v| format!("{v}"));
        assert_eq!(names(&axis), ["1", "100", "10000", "1000000"]);
        assert_eq!(
            names(&Axis::decades("GB/s", 0.4, 6.0, 5, |v| format!("{v}"))),
            ["0.5", "1", "2", "5"]
        );
        assert_eq!(
            names(&Axis::powers_of_two("bytes", 3.0, 300.0, 3, |v| format!("{v}"))),
            ["8", "64"]
        );
        assert!((axis.at(1e3) - 0.5).abs() < 1e-12 && (axis.value(0.5) - 1e3).abs() < 1e-9);
    }

    #[test]
    fn percentages_are_short() {
        assert_eq!(percentage(0.5), "50%");
        assert_eq!(percentage(1.0 / 3.0), "33.33%");
        assert_eq!(percentage(-0.0), "0%");
        assert_eq!(percentage(f64::NAN), "0%");
    }

    #[test]
    fn a_range_at_the_end_of_all_numbers_is_an_axis() {
        for from in [
            f64::MAX,
            1e308,
            f64::MIN_POSITIVE,
            0.0,
            -1.0,
            f64::INFINITY,
            f64::NAN,
        ] {
            for to in [0.0, f64::MAX, f64::INFINITY, f64::NAN] {
                assert!(Axis::decades("", from, to, 5, |_| String::new()).ticks.len() <= 8);
                assert!(
                    Axis::powers_of_two("", from, to, 5, |_| String::new())
                        .ticks
                        .len()
                        <= 8
                );
                assert!(Axis::linear("", from, to, 5, |_| String::new()).ticks.len() <= 11);
            }
        }
    }

    proptest! {
        #[test]
        fn any_range_gives_a_finite_axis(a in any::<f64>(), b in any::<f64>(), v in any::<f64>(), kind in 0..3) {
            let name = |v: f64| format!("{v}");
            let axis = match kind {
                0 => Axis::linear("", a, b, 5, name),
                1 => Axis::powers_of_two("", a, b, 5, name),
                _ => Axis::decades("", a, b, 5, name),
            };
            prop_assert!((0.0..=1.0).contains(&axis.at(v)));
            prop_assert!(axis.ticks.len() <= 12);
        }
    }
}
