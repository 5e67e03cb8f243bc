//! Colour scale from the best to the worst value, for heat maps.
//!
//! The scale is viridis, with the bright end for the best value. It is perceptually uniform, and
//! its order is visible in greyscale and with any colour blindness. It is a scale of ratios,
//! because a difference of 5 % means the same on a fast and on a slow network. The first percents
//! get more room than the hundredth: a heat map should show which settings are good, not how bad
//! the bad ones are.

use ronde_job::units as number;

/// Legend of a colour scale.
#[derive(Clone, Debug)]
pub struct Key {
    /// Meaning of the colours.
    pub label: String,
    /// Positions on the scale, from 0 to 1, and their labels.
    pub ticks: Vec<(f64, String)>,
}

/// Grade of a position on the scale for a terminal, from 0 to 9.
pub fn grade(at: f64) -> usize {
    (9.0 * at.clamp(0.0, 1.0)).round() as usize
}

impl Key {
    /// Grades of the labelled positions: `0 best, 2 +2 %, 9 +50 %`.
    pub fn grades(&self) -> String {
        let grades = self.ticks.iter();
        let grades = grades.map(|(at, label)| format!("{} {label}", grade(*at)));
        grades.collect::<Vec<_>>().join(", ")
    }
}

/// Direction in which values are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Low values are better, such as step times.
    Lower,
    /// High values are better, such as scores.
    Higher,
}

/// Colour scale of a set of values: the distance of a value from the best, in logarithms if all
/// values are above zero.
#[derive(Clone, Debug)]
pub struct Shades {
    /// Whether distances are ratios; differences otherwise.
    ratios: bool,
    /// 1 if low values are better, −1 if high values are.
    sign: f64,
    /// Position of the best value, as [`position`](Self::position) returns it.
    best: f64,
    /// Distance at the end of the scale.
    most: f64,
    /// Whether some values are beyond the end of the scale.
    beyond: bool,
}

/// Smallest ratio at the end of the scale. A shorter scale would show noise as a difference.
const LEAST: f64 = 1.1;
/// Smallest logarithm of the ratio at the end of the scale, in standard deviations of the noise,
/// where the noise is known.
const NOISES: f64 = 8.0;
/// Largest ratio at the end of the scale. On a longer scale, one very bad value would make all
/// others look alike.
const MOST: f64 = 3.0;
/// Exponent of the position on the scale. Values below 1 stretch the beginning of the scale.
const STRETCH: f64 = 0.6;
/// Shares above the best value that are labelled.
const ABOVE: [f64; 8] = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0];
/// Shares below the best value that are labelled.
const BELOW: [f64; 8] = [0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.66];

impl Shades {
    /// Returns the scale of these values, some of which may not be finite. `noise` is the relative
    /// standard deviation of one measurement, 0 if unknown.
    pub fn new(values: impl IntoIterator<Item = f64>, better: Better, noise: f64) -> Self {
        let finite = values.into_iter().filter(|value| value.is_finite());
        let ends = |(low, high): (f64, f64), value: f64| (low.min(value), high.max(value));
        let (low, high) = finite.fold((f64::INFINITY, f64::NEG_INFINITY), ends);
        let (sign, best, worst) = match better {
            Better::Lower => (1.0, low, high),
            Better::Higher => (-1.0, high, low),
        };
        let mut shades = Shades {
            // The ratio of very small values can overflow to infinity.
            ratios: low > 1e-300 && high / low < 1e300,
            sign,
            best: 0.0,
            most: 1.0,
            beyond: false,
        };
        if low <= high {
            shades.best = shades.position(best);
            shades.most = shades.position(worst) - shades.best;
        }
        if shades.ratios {
            let least = (NOISES * noise.max(0.0)).exp().clamp(LEAST, MOST);
            shades.beyond = shades.most > MOST.ln();
            shades.most = shades.most.clamp(least.ln(), MOST.ln());
        } else if shades.most.is_nan() || shades.most <= 0.0 {
            shades.most = 1.0;
        }
        shades
    }

    /// Position of a value such that better values have lower positions.
    fn position(&self, value: f64) -> f64 {
        if self.ratios {
            self.sign * value.max(f64::MIN_POSITIVE).ln()
        } else {
            // Halved, because the difference of two very large numbers can overflow.
            self.sign * value / 2.0
        }
    }

    /// Position of a value on the scale: 0 is the best, 1 the end. Values that are not finite are
    /// at 1.
    pub fn at(&self, value: f64) -> f64 {
        match value.is_finite() {
            true => self.stretched(self.position(value) - self.best),
            false => 1.0,
        }
    }

    /// Position on the scale at this distance from the best.
    fn stretched(&self, distance: f64) -> f64 {
        let share = (distance / self.most).clamp(0.0, 1.0);
        if self.ratios {
            share.powf(STRETCH)
        } else {
            share
        }
    }

    /// Returns the legend of the scale.
    pub fn key(&self, label: String) -> Key {
        let ticks = match self.ratios {
            true => self.shares(),
            false => {
                let ends = [self.best, self.best + self.most].map(|at| 2.0 * self.sign * at);
                let (from, to) = (ends[0].min(ends[1]), ends[0].max(ends[1]));
                let values = round_values(from, to, 6).into_iter();
                values.map(|value| (self.at(value), tick(value))).collect()
            }
        };
        Key { label, ticks }
    }

    /// Ticks at round percentages above (or below) the best value; the first is the best value.
    fn shares(&self) -> Vec<(f64, String)> {
        let (sign, shares) = match self.sign > 0.0 {
            true => ('+', ABOVE),
            false => ('−', BELOW),
        };
        let mut ticks = vec![(0.0, "best".to_owned())];
        for share in shares {
            let distance = self.sign * (self.sign * share).ln_1p();
            let at = self.stretched(distance);
            let is_apart = ticks.last().is_none_or(|(last, _)| at - last >= 0.1);
            if is_apart && distance <= self.most + 1e-9 {
                ticks.push((at, format!("{sign}{} %", tick(share * 100.0))));
            }
        }
        if self.beyond
            && let Some((at, name)) = ticks.last_mut().filter(|(at, _)| *at > 0.99)
        {
            *at = 1.0;
            name.insert_str(0, "≥ ");
        }
        ticks
    }
}

/// Colours of viridis in equal distances, the darkest first.
const VIRIDIS: [[u8; 3]; 8] = [
    [68, 1, 84],
    [70, 50, 127],
    [54, 92, 141],
    [39, 127, 143],
    [31, 162, 136],
    [74, 194, 110],
    [160, 219, 57],
    [254, 232, 37],
];

/// Colour at a position on the scale, 0 for the best and 1 for the end, as `#rrggbb`.
pub fn colour(at: f64) -> String {
    let at = if at.is_nan() { 1.0 } else { at.clamp(0.0, 1.0) };
    let place = (1.0 - at) * (VIRIDIS.len() - 1) as f64;
    let below = (place as usize).min(VIRIDIS.len() - 2);
    let share = place - below as f64;
    let [red, green, blue] = [0, 1, 2].map(|part| {
        let ends = [VIRIDIS[below], VIRIDIS[below + 1]].map(|colour| f64::from(colour[part]));
        (ends[0] + (ends[1] - ends[0]) * share).round() as u8
    });
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// Round values from `from` to `to`, at most `most` of them: multiples of 1, 2 or 5 times a power
/// of ten.
pub fn round_values(from: f64, to: f64, most: usize) -> Vec<f64> {
    let least = (to - from) / (most as f64 - 1.0);
    if !(least > 0.0 && least.is_finite()) {
        return vec![from];
    }
    let power = 10f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
    let step = steps.into_iter().find(|step| *step >= least * 0.999);
    let step = step.unwrap_or(10.0 * power);
    let first = (from / step - 1e-9).ceil();
    let value = |index: usize| (first + index as f64) * step;
    let values = (0..most).map(value);
    values
        .take_while(|value| *value <= to + 1e-9 * step)
        .collect()
}

/// Formats a value for an axis: 0.5, 1, 2.5, 128, 1e−5.
pub fn tick(value: f64) -> String {
    match value.abs() {
        v if v != 0.0 && v.is_finite() && !(1e-3..1e6).contains(&v) => {
            // Round first, so that no trailing zeros are written.
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

    fn names(shades: &Shades) -> Vec<String> {
        let ticks = shades.key(String::new()).ticks.into_iter();
        ticks.map(|(_, name)| name).collect()
    }

    #[test]
    fn positive_values_have_ratios() {
        let shades = Shades::new([40.0, 44.0, 80.0, f64::NAN], Better::Lower, 0.0);
        assert_eq!([40.0, 80.0, 400.0].map(|v| shades.at(v)), [0.0, 1.0, 1.0]);
        // √2 is half of the way to 2 on a logarithmic scale, and the first half is stretched.
        assert!((shades.at(40.0 * 2f64.sqrt()) - 0.5f64.powf(0.6)).abs() < 1e-12);
        let expected = ["best", "+2 %", "+10 %", "+20 %", "+50 %", "+100 %"];
        assert_eq!(names(&shades), expected);
        let shades = Shades::new([480.0, 424.0, 240.0], Better::Higher, 0.0);
        assert_eq!(
            [480.0, 240.0, f64::NAN].map(|v| shades.at(v)),
            [0.0, 1.0, 1.0]
        );
        let expected = ["best", "−2 %", "−10 %", "−20 %", "−30 %", "−50 %"];
        assert_eq!(names(&shades), expected);
    }

    #[test]
    fn neither_noise_nor_one_bad_value_determines_the_scale() {
        let equal = Shades::new([40.0, 40.0], Better::Lower, 0.0);
        assert_eq!((equal.at(40.0), &*names(&equal)[4]), (0.0, "+10 %"));
        let bad = Shades::new([40.0, 42.0, 4000.0], Better::Lower, 0.0);
        assert!(bad.at(4000.0) == 1.0 && bad.at(42.0) > 0.04);
        assert_eq!(names(&bad).last().unwrap(), "≥ +200 %");
        // The largest ratio is 1.1. With a noise of 0.1 the scale ends at e^0.8, so that 44 is at
        // (ln 1.1 / 0.8)^0.6.
        let at = |noise| Shades::new([40.0, 44.0], Better::Lower, noise).at(44.0);
        assert!(at(0.0) > 0.999_999 && at(f64::NAN) > 0.999_999);
        assert!((at(0.1) - 0.279).abs() < 1e-3, "{}", at(0.1));
    }

    #[test]
    fn values_below_zero_have_differences() {
        let shades = Shades::new([-1.0, 0.0, 3.0], Better::Lower, 0.0);
        assert_eq!([-1.0, 1.0, 3.0].map(|v| shades.at(v)), [0.0, 0.5, 1.0]);
        assert_eq!(names(&shades), ["−1", "0", "1", "2", "3"]);
        let shades = Shades::new([-1.0, 0.0, 3.0], Better::Higher, 0.0);
        assert_eq!([-1.0, 1.0, 3.0].map(|v| shades.at(v)), [1.0, 0.5, 0.0]);
    }

    #[test]
    fn ticks_have_few_digits() {
        let values = [0.0, 0.5, 1.0, 2.5, 128.0, 1000.0, 1e-5, -0.25, 2.5e7];
        let expected = [
            "0", "0.5", "1", "2.5", "128", "1,000", "1e−5", "−0.25", "2.5e7",
        ];
        assert_eq!(values.map(tick), expected);
    }

    #[test]
    fn the_best_is_bright() {
        let colours = [0.0, 1.0, f64::NAN].map(colour);
        assert_eq!(colours, ["#fee825", "#440154", "#440154"]);
    }

    proptest! {
        #[test]
        fn any_values_have_positions(
            values in prop::collection::vec(any::<f64>(), 0..6),
            value in any::<f64>(),
            high in any::<bool>(),
        ) {
            let better = if high { Better::Higher } else { Better::Lower };
            let shades = Shades::new(values, better, 0.0);
            prop_assert!((0.0..=1.0).contains(&shades.at(value)));
            for (at, _) in shades.key(String::new()).ticks {
                prop_assert!((0.0..=1.0).contains(&at));
            }
        }
    }
}
