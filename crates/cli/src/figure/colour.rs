//! Colours: those of the page, which follow light and dark, and the scale from the best to the worst, which does not.
//!
//! The scale is viridis, bright for the best: even to the eye, in its order also in grey and with any colour blindness.
//! It goes by ratios, for 5 % are 5 % on a fast network and on a slow one, and gives the first percents more room than
//! the hundredth: what is asked of a picture is which settings are good, not how bad the bad ones are.

use plotters::style::RGBAColor;
use plotters::style::colors::colormaps::ViridisRGB;

use super::spacing::{linear, tick};

/// The page behind the figure.
pub(super) const PAPER: RGBAColor = RGBAColor(0xff, 0xff, 0xff, 1.0);
/// Behind what has no value.
pub(super) const PANEL: RGBAColor = RGBAColor(0xf3, 0xf5, 0xf7, 1.0);
/// Titles and whatever is read first.
pub(super) const INK: RGBAColor = RGBAColor(0x1a, 0x1f, 0x24, 1.0);
/// Axes and their labels.
pub(super) const SOFT: RGBAColor = RGBAColor(0x55, 0x60, 0x6b, 1.0);
/// Grids.
pub(super) const LINE: RGBAColor = RGBAColor(0xd5, 0xdb, 0xe1, 1.0);
/// What is told apart: samples, default, best, another; as in `html/page.css`.
pub(super) const SERIES: [RGBAColor; 6] = [
    RGBAColor(0x0b, 0x5f, 0xa5, 1.0),
    RGBAColor(0xc4, 0x4e, 0x00, 1.0),
    RGBAColor(0x00, 0x80, 0x5d, 1.0),
    RGBAColor(0xa0, 0x4a, 0x86, 1.0),
    RGBAColor(0x8a, 0x61, 0x00, 1.0),
    RGBAColor(0x47, 0x52, 0x5d, 1.0),
];
/// Dark on a bright colour of the scale, on a dark page too: hence not `INK`.
pub(super) const ON_BRIGHT: RGBAColor = RGBAColor(0x10, 0x15, 0x1a, 1.0);
/// Bright on a dark colour of the scale, on any page.
pub(super) const ON_DARK: RGBAColor = RGBAColor(0xfa, 0xfc, 0xfd, 1.0);

/// The colour, seen through so far.
pub(super) fn thin(colour: RGBAColor, alpha: f64) -> RGBAColor {
    RGBAColor(colour.0, colour.1, colour.2, alpha)
}

/// What a colour says: how much worse than the best a value is.
#[derive(Clone, Debug)]
pub(crate) struct Scale {
    /// What is measured against the best, such as "step time above the best, 40.2 ms".
    pub(crate) label: String,
    /// Which values are good.
    pub(crate) better: Better,
    /// What one value scatters by, as a share of it; 0 where the values are smooth, or it is not known.
    pub(crate) noise: f64,
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
pub(super) struct Shades {
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
    /// For values of which some may be no numbers.
    pub(super) fn new(values: impl IntoIterator<Item = f64>, better: Better, noise: f64) -> Self {
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
    pub(super) fn at(&self, value: f64) -> f64 {
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

    /// What a legend of the scale names, and where on it; the first is the best.
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        match self.measure {
            Measure::Ratio { most, .. } => self.shares(most),
            Measure::Difference { best, most } => {
                let (from, to) = match self.better {
                    Better::Lower => (best, best + 2.0 * most),
                    Better::Higher => (best - 2.0 * most, best),
                };
                let ticks = linear(from, to, 6).ticks;
                ticks
                    .into_iter()
                    .map(|(value, name)| (self.at(value), name))
                    .collect()
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

/// The colour of a place on the scale: 0 is the best, 1 the end.
pub(super) fn shade(at: f64) -> RGBAColor {
    let at = if at.is_nan() { 1.0 } else { at.clamp(0.0, 1.0) };
    let colour = ViridisRGB::get_color(1.0 - at);
    RGBAColor(colour.0, colour.1, colour.2, 1.0)
}

/// What can be read on that colour of the scale: whichever of the two contrasts more (WCAG 2.2, relative luminance).
pub(super) fn readable_on(colour: RGBAColor) -> RGBAColor {
    let on = luminance(colour);
    let contrast = |with: RGBAColor| {
        let with = luminance(with);
        (on.max(with) + 0.05) / (on.min(with) + 0.05)
    };
    if contrast(ON_BRIGHT) >= contrast(ON_DARK) {
        ON_BRIGHT
    } else {
        ON_DARK
    }
}

fn luminance(colour: RGBAColor) -> f64 {
    let linear = |part: u8| match f64::from(part) / 255.0 {
        part if part <= 0.04045 => part / 12.92,
        part => ((part + 0.055) / 1.055).powf(2.4),
    };
    0.2126 * linear(colour.0) + 0.7152 * linear(colour.1) + 0.0722 * linear(colour.2)
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
    fn text_can_be_read_everywhere() {
        for i in 0..=100 {
            let colour = shade(f64::from(i) / 100.0);
            let (a, b) = (luminance(colour), luminance(readable_on(colour)));
            assert!((a.max(b) + 0.05) / (a.min(b) + 0.05) >= 4.0, "{colour:?}");
        }
    }

    #[test]
    fn brightness_falls_from_the_best_to_the_worst() {
        let bright: Vec<f64> = (0..=50).map(|i| luminance(shade(f64::from(i) / 50.0))).collect();
        assert!(bright.windows(2).all(|pair| pair[1] < pair[0]));
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
