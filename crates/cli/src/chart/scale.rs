//! Colour scale from the best to the worst value, for heat maps.
//!
//! The scale is viridis, with the bright end for the best value. It is perceptually uniform, and
//! its order is visible in greyscale and with any colour blindness. It is a scale of ratios,
//! because a difference of 5 % means the same on a fast and on a slow network. The first percents
//! get more room than the hundredth: a heat map should show which settings are good, not how bad
//! the bad ones are.

use plotters::style::colors::colormaps::ViridisRGB;
use plotters::style::{RGBAColor, RGBColor};

use crate::present::units as number;

/// Legend of a colour scale.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    /// Meaning of the colours.
    pub(crate) label: String,
    /// Positions on the scale, from 0 to 1, and their labels.
    pub(crate) ticks: Vec<(f64, String)>,
}

/// Direction in which values are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Better {
    /// Low values are better, such as step times.
    Lower,
    /// High values are better, such as scores.
    Higher,
}

/// Colour scale of a set of values.
#[derive(Clone, Debug)]
pub(crate) struct Shades {
    measure: Measure,
    better: Better,
    /// Whether some values are beyond the end of the scale.
    beyond: bool,
}

/// Distance of a value from the best.
#[derive(Clone, Copy, Debug)]
enum Measure {
    /// Ratio to the best; `most` is the logarithm of the ratio at the end of the scale.
    Ratio { best: f64, most: f64 },
    /// Difference from the best, because some values are zero or negative; `most` is half the
    /// difference at the end of the scale.
    Difference { best: f64, most: f64 },
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

impl Shades {
    /// Returns the scale of these values, some of which may not be finite. `noise` is the relative
    /// standard deviation of one measurement, 0 if unknown.
    pub(crate) fn new(values: impl IntoIterator<Item = f64>, better: Better, noise: f64) -> Self {
        let values: Vec<f64> = values.into_iter().filter(|v| v.is_finite()).collect();
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (best, worst) = match better {
            Better::Lower => (low, high),
            Better::Higher => (high, low),
        };
        // The ratio of very small values can overflow to infinity.
        if low > 1e-300 && high / low < 1e300 {
            let ratio = high / low;
            let least = (NOISES * noise.max(0.0)).exp().clamp(LEAST, MOST);
            return Shades {
                measure: Measure::Ratio {
                    best,
                    most: ratio.clamp(least, MOST).ln(),
                },
                better,
                beyond: ratio > MOST,
            };
        }
        // Halve first: the difference of two very large numbers can overflow.
        let most = (worst / 2.0 - best / 2.0).abs();
        Shades {
            measure: Measure::Difference {
                best: if best.is_finite() { best } else { 0.0 },
                most: if most.is_finite() && most > 0.0 {
                    most
                } else {
                    1.0
                },
            },
            better,
            beyond: false,
        }
    }

    /// Position of a value on the scale: 0 is the best, 1 the end. Values that are not finite are
    /// at 1.
    pub(crate) fn at(&self, value: f64) -> f64 {
        if !value.is_finite() {
            return 1.0;
        }
        let far = match self.measure {
            Measure::Ratio { best, most } => (value.max(f64::MIN_POSITIVE) / best).ln() / most,
            Measure::Difference { best, most } => (value / 2.0 - best / 2.0) / most,
        };
        let far = if self.better == Better::Lower {
            far
        } else {
            -far
        };
        match self.measure {
            Measure::Ratio { .. } => far.clamp(0.0, 1.0).powf(STRETCH),
            Measure::Difference { .. } => far.clamp(0.0, 1.0),
        }
    }

    /// Returns the legend of the scale.
    pub(crate) fn key(&self, label: String) -> Key {
        Key {
            label,
            ticks: self.ticks(),
        }
    }

    /// Labels of the scale and their positions; the first is the best value.
    fn ticks(&self) -> Vec<(f64, String)> {
        match self.measure {
            Measure::Ratio { most, .. } => self.shares(most),
            Measure::Difference { best, most } => {
                let (from, to) = match self.better {
                    Better::Lower => (best, best + 2.0 * most),
                    Better::Higher => (best - 2.0 * most, best),
                };
                let ticks = round_values(from, to, 6);
                ticks.map(|value| (self.at(value), tick(value))).collect()
            }
        }
    }

    /// Ticks at round percentages above (or below) the best value.
    fn shares(&self, most: f64) -> Vec<(f64, String)> {
        let (sign, shares): (&str, &[f64]) = match self.better {
            Better::Lower => ("+", &[0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0]),
            Better::Higher => ("−", &[0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.66]),
        };
        let log = |share: f64| match self.better {
            Better::Lower => share.ln_1p(),
            Better::Higher => -(-share).ln_1p(),
        };
        let mut ticks = vec![(0.0, "best".to_owned())];
        for &share in shares {
            let far = log(share) / most;
            let at = far.min(1.0).powf(STRETCH);
            let apart = ticks.last().is_none_or(|(last, _)| at - last >= 0.1);
            if apart && far <= 1.0 + 1e-9 {
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

/// Colour at a position on the scale, 0 for the best and 1 for the end, as `#rrggbb`.
pub(crate) fn colour(at: f64) -> String {
    let at = if at.is_nan() { 1.0 } else { at.clamp(0.0, 1.0) };
    let RGBColor(red, green, blue) = ViridisRGB::get_color(1.0 - at);
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// Black or white, whichever is more readable on this colour over a white background (relative
/// luminance of WCAG 2.2).
pub(super) fn readable_on(RGBAColor(red, green, blue, alpha): RGBAColor) -> RGBColor {
    let linear = |part: u8| match (f64::from(part) * alpha + 255.0 * (1.0 - alpha)) / 255.0 {
        part if part <= 0.04045 => part / 12.92,
        part => ((part + 0.055) / 1.055).powf(2.4),
    };
    if 0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue) > 0.18 {
        RGBColor(0x10, 0x15, 0x1a)
    } else {
        RGBColor(0xfa, 0xfc, 0xfd)
    }
}

/// Round values from `from` to `to`, about `most` of them.
pub(super) fn round_values(from: f64, to: f64, most: usize) -> impl Iterator<Item = f64> {
    let rough = (to - from) / most.max(1) as f64;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0]
        .into_iter()
        .find(|m| m * power >= rough * 0.999)
        .unwrap_or(10.0)
        * power;
    // Multiply instead of adding up, so that a step lost to rounding cannot cause an endless loop.
    let first = (from / step - 1e-9).ceil();
    (0..=2 * most)
        .map(move |i| (first + i as f64) * step)
        .take_while(move |value| *value <= to + step * 1e-6)
}

/// Formats a value for an axis: 0.5, 1, 2.5, 128, 1e−5.
pub(crate) fn tick(value: f64) -> String {
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
        shades.ticks().into_iter().map(|(_, name)| name).collect()
    }

    #[test]
    fn the_scale_goes_by_ratios() {
        let shades = Shades::new([40.0, 44.0, 80.0, f64::NAN], Better::Lower, 0.0);
        assert_eq!(
            (shades.at(40.0), shades.at(80.0), shades.at(400.0)),
            (0.0, 1.0, 1.0)
        );
        // √2 is half of the way to 2 on a logarithmic scale, and the first half is stretched.
        assert!((shades.at(40.0 * 2f64.sqrt()) - 0.5f64.powf(0.6)).abs() < 1e-12);
        assert_eq!(
            names(&shades),
            ["best", "+2 %", "+10 %", "+20 %", "+50 %", "+100 %"]
        );
        let shades = Shades::new([480.0, 424.0, 240.0], Better::Higher, 0.0);
        assert_eq!(
            (shades.at(480.0), shades.at(240.0), shades.at(f64::NAN)),
            (0.0, 1.0, 1.0)
        );
        assert_eq!(
            names(&shades),
            ["best", "−2 %", "−10 %", "−20 %", "−30 %", "−50 %"]
        );
    }

    #[test]
    fn neither_noise_nor_one_bad_value_rules_the_scale() {
        let equal = Shades::new([40.0, 40.0], Better::Lower, 0.0);
        assert_eq!(
            (equal.at(40.0), names(&equal).last().unwrap().as_str()),
            (0.0, "+10 %")
        );
        let bad = Shades::new([40.0, 42.0, 4000.0], Better::Lower, 0.0);
        assert!(bad.at(4000.0) == 1.0 && bad.at(42.0) > 0.04);
        assert_eq!(names(&bad).last().unwrap(), "≥ +200 %");
        // The largest ratio is 1.1. With a noise of 0.1 the scale ends at e^0.8, so that 44 is at
        // (ln 1.1 / 0.8)^0.6.
        let at = |noise| Shades::new([40.0, 44.0], Better::Lower, noise).at(44.0);
        assert_eq!((at(0.0), at(f64::NAN)), (1.0, 1.0));
        assert!((at(0.1) - 0.279).abs() < 1e-3, "{}", at(0.1));
    }

    #[test]
    fn values_below_zero_have_differences() {
        let shades = Shades::new([-1.0, 0.0, 3.0], Better::Lower, 0.0);
        assert_eq!(
            (shades.at(-1.0), shades.at(1.0), shades.at(3.0)),
            (0.0, 0.5, 1.0)
        );
        assert_eq!(names(&shades), ["−1", "0", "1", "2", "3"]);
    }

    #[test]
    fn ticks_are_written_as_people_do() {
        assert_eq!(
            [0.0, 0.5, 1.0, 2.5, 128.0, 1000.0, 1e-5, -0.25, 2.5e7].map(tick),
            [
                "0", "0.5", "1", "2.5", "128", "1,000", "1e−5", "−0.25", "2.5e7"
            ]
        );
        let round = |from, to| round_values(from, to, 5).collect::<Vec<f64>>();
        assert_eq!(round(0.0, 73.0), [0.0, 20.0, 40.0, 60.0]);
        assert_eq!(round(-3.0, 9.0), [0.0, 5.0]);
    }

    #[test]
    fn the_best_is_bright() {
        assert_eq!(
            (colour(0.0), colour(1.0), colour(f64::NAN)),
            ("#fee825".into(), "#440154".into(), "#440154".into())
        );
    }

    proptest! {
        #[test]
        fn any_values_have_places(values in prop::collection::vec(any::<f64>(), 0..6), value in any::<f64>(), high in any::<bool>()) {
            let shades = Shades::new(values, if high { Better::Higher } else { Better::Lower }, 0.0);
            prop_assert!((0.0..=1.0).contains(&shades.at(value)));
            for (at, _) in shades.ticks() {
                prop_assert!((0.0..=1.0).contains(&at));
            }
        }
    }
}
