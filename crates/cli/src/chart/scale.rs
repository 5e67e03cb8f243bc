//! Colour scale from the best to the worst value, for heat maps.
//!
//! The scale is viridis, bright for the best: even to the eye, in its order also in grey and with any colour blindness.
//! It goes by ratios, as 5 % are 5 % on a fast network and on a slow one, and gives the first percents more room than
//! the hundredth: a heat map should show which settings are good, not how bad the bad ones are.

use plotters::style::colors::colormaps::ViridisRGB;
use plotters::style::{RGBAColor, RGBColor};

use crate::html::number;

/// The scale as a legend shows it.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    /// What the colours mean.
    pub(crate) label: String,
    /// Places on the scale, from 0 to 1, and their labels.
    pub(crate) ticks: Vec<(f64, String)>,
}

/// Which values are good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Better {
    /// Low ones, such as step times.
    Lower,
    /// High ones, such as scores.
    Higher,
}

/// The colours of a set of values.
#[derive(Clone, Debug)]
pub(crate) struct Shades {
    measure: Measure,
    better: Better,
    /// Whether there are values beyond the end of the scale.
    beyond: bool,
}

/// How far a value is from the best.
#[derive(Clone, Copy, Debug)]
enum Measure {
    /// By its ratio to the best, up to the logarithm `most`.
    Ratio { best: f64, most: f64 },
    /// By its difference: some values are zero or below.
    Difference { best: f64, most: f64 },
}

/// The scale is at least so long, or it would show noise as if it were a landscape.
const LEAST: f64 = 1.1;
/// For the same reason, where the noise is known, by so many times that (as a logarithm).
const NOISES: f64 = 8.0;
/// And at most so long, or one very bad value would make all others look alike.
const MOST: f64 = 3.0;
/// Below 1: the beginning of the scale is stretched.
const STRETCH: f64 = 0.6;

impl Shades {
    /// Of these values, of which some may not be finite; one measurement scatters by the share `noise`, 0 if that is
    /// unknown.
    pub(crate) fn new(values: impl IntoIterator<Item = f64>, better: Better, noise: f64) -> Self {
        let values: Vec<f64> = values.into_iter().filter(|v| v.is_finite()).collect();
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (best, worst) = match better {
            Better::Lower => (low, high),
            Better::Higher => (high, low),
        };
        // Tiny ones have no ratio that could be told from infinity.
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
        // Halves, as the difference of two huge numbers is none.
        let most = (worst / 2.0 - best / 2.0).abs();
        Shades {
            measure: Measure::Difference {
                best: if best.is_finite() { best } else { 0.0 },
                most: if most.is_finite() && most > 0.0 { most } else { 1.0 },
            },
            better,
            beyond: false,
        }
    }

    /// Where a value is on the scale: 0 is the best, 1 the end, where also lies what is no number.
    pub(crate) fn at(&self, value: f64) -> f64 {
        if !value.is_finite() {
            return 1.0;
        }
        let far = match self.measure {
            Measure::Ratio { best, most } => (value.max(f64::MIN_POSITIVE) / best).ln() / most,
            Measure::Difference { best, most } => (value / 2.0 - best / 2.0) / most,
        };
        let far = if self.better == Better::Lower { far } else { -far };
        match self.measure {
            Measure::Ratio { .. } => far.clamp(0.0, 1.0).powf(STRETCH),
            Measure::Difference { .. } => far.clamp(0.0, 1.0),
        }
    }

    /// The scale as a legend shows it.
    pub(crate) fn key(&self, label: String) -> Key {
        Key {
            label,
            ticks: self.ticks(),
        }
    }

    /// Labels of the scale and their places on it; the first is the best.
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

    /// Shares by which values are above (or below) the best.
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

/// The colour of a place on the scale, 0 the best and 1 the end, as `#rrggbb`.
pub(crate) fn colour(at: f64) -> String {
    let at = if at.is_nan() { 1.0 } else { at.clamp(0.0, 1.0) };
    let RGBColor(red, green, blue) = ViridisRGB::get_color(1.0 - at);
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// Black or white, whichever is easier to read on this colour (WCAG 2.2, relative luminance) over white.
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
    // Counted rather than added up, so that a step lost to rounding cannot loop for ever.
    let first = (from / step - 1e-9).ceil();
    (0..=2 * most)
        .map(move |i| (first + i as f64) * step)
        .take_while(move |value| *value <= to + step * 1e-6)
}

/// A value as an axis names it: 0.5, 1, 2.5, 128, 1e−5.
pub(crate) fn tick(value: f64) -> String {
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
        // √2 is half way to 2, and the first half is stretched.
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
        // 10 % more is all there is, and no more than one value scatters by: (ln 1.1 / 0.8)^0.6 of a scale up to e^0.8.
        let at = |noise| Shades::new([40.0, 44.0], Better::Lower, noise).at(44.0);
        assert_eq!((at(0.0), at(f64::NAN)), (1.0, 1.0));
        assert!((at(0.1) - 0.279).abs() < 1e-3, "{}", at(0.1));
    }

    #[test]
    fn values_below_zero_have_differences() {
        let shades = Shades::new([-1.0, 0.0, 3.0], Better::Lower, 0.0);
        assert_eq!((shades.at(-1.0), shades.at(1.0), shades.at(3.0)), (0.0, 0.5, 1.0));
        assert_eq!(names(&shades), ["−1", "0", "1", "2", "3"]);
    }

    #[test]
    fn ticks_are_written_as_people_do() {
        assert_eq!(
            [0.0, 0.5, 1.0, 2.5, 128.0, 1000.0, 1e-5, -0.25, 2.5e7].map(tick),
            ["0", "0.5", "1", "2.5", "128", "1,000", "1e−5", "−0.25", "2.5e7"]
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
