//! Comparison of two searches: overlap, agreement, and the better of their choices.
//!
//! Levels of step time may not be comparable: the job, the day or the network may differ.
//! Differences between settings are comparable. So each search's surface gives an estimate of the
//! difference between the two choices, and the estimates are combined with weights from their
//! variances.

use serde::Serialize;
use statrs::statistics::Statistics;

use super::Review;
use super::best::Difference;
use super::setting::Setting;
use super::trial::INTERVAL_95;
use ronde_job::percentile::geometric;

/// Number of thresholds and of cycle times at which two surfaces are compared.
const PLACES: usize = 6;
/// Maximum number of settings of either search that are compared, since every pair is compared.
const SETTINGS_MOST: usize = 1000;
/// A surface whose standard deviation is smaller is flat: no correlation is computed.
const FLAT: f64 = 0.005;
/// Number of standard deviations between two estimates at which they contradict each other.
const CONTRADICTION: f64 = 2.0;

/// Comparison of two searches.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Source of the first log.
    pub a: String,
    /// Source of the second log.
    pub b: String,
    /// Overlap of the settings that were tried.
    pub overlap: Overlap,
    /// Comparison of the two choices; `None` if a search chose nothing.
    pub preference: Option<Preference>,
}

/// Overlap of two searches.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Overlap {
    /// Number of settings that both tried, equal within 1 %.
    pub settings: u64,
    /// Intersection of the ranges of thresholds, MiB; `None` if it is empty.
    pub fusion_mb: Option<[f64; 2]>,
    /// Intersection of the ranges of cycle times, ms; `None` if it is empty.
    pub cycle_ms: Option<[f64; 2]>,
    /// Correlation of the surfaces over the overlap, −1 to 1; `None` if one of them is flat.
    pub correlation: Option<f64>,
    /// Mean slow-down of the second log over the overlap; `None` if the quantities differ.
    pub slower: Option<Difference>,
}

/// Difference in step time between the second choice and the first; above 0 the second is slower.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Preference {
    /// Choice of the first search.
    pub a: Setting,
    /// Choice of the second search.
    pub b: Setting,
    /// Whether measurements cannot distinguish the two choices.
    pub same: bool,
    /// Difference from the first log.
    pub by_a: Difference,
    /// Difference from the second log.
    pub by_b: Difference,
    /// Both combined.
    pub together: Difference,
    /// Whether the two logs contradict each other.
    pub contradiction: bool,
}

/// Compares two searches.
pub fn compare(a: &Review, b: &Review) -> Comparison {
    Comparison {
        a: a.source.clone(),
        b: b.source.clone(),
        overlap: overlap(a, b).unwrap_or_default(),
        preference: preference(a, b),
    }
}

fn overlap(a: &Review, b: &Review) -> Option<Overlap> {
    let (tried_a, tried_b) = (a.tried.as_ref()?, b.tried.as_ref()?);
    let (surface_a, surface_b) = (a.surface.as_ref()?, b.surface.as_ref()?);
    let (of_a, mut common) = (settings(a), settings(b));
    common.retain(|b| of_a.iter().any(|a| same_numbers(a, b)));
    let fusion_mb = meet(tried_a.fusion_mb, tried_b.fusion_mb);
    let cycle_ms = meet(tried_a.cycle_ms, tried_b.cycle_ms);
    let means = fusion_mb.zip(cycle_ms).map(|(fusion, cycle)| {
        // Each surface with the switches of its own choice.
        [(a, surface_a), (b, surface_b)].map(|(review, surface)| {
            let switches = chosen(review).map_or([None; 4], |setting| setting.switches);
            let places = Setting::grid(&spread(fusion), &spread(cycle), switches);
            let expected = surface.at(&places).into_iter();
            expected.map(|of| of.mean).collect::<Vec<f64>>()
        })
    });
    let slower = |[a, b]: &[Vec<f64>; 2]| b.iter().zip(a).map(|(b, a)| b - a).collect();
    // The logs do not state whether both jobs move the same bytes; scores are compared unchanged.
    let comparable = means.as_ref().filter(|_| a.measure == b.measure);
    Some(Overlap {
        settings: common.len() as u64,
        fusion_mb,
        cycle_ms,
        correlation: means.as_ref().and_then(|[a, b]| correlation(a, b)),
        slower: comparable.map(slower).map(Difference::of),
    })
}

fn preference(a: &Review, b: &Review) -> Option<Preference> {
    let (chosen_a, chosen_b) = (chosen(a)?, chosen(b)?);
    // Mean and standard deviation of ln(step time), the second choice less the first.
    let answer = |review: &Review| {
        let logs = review.surface.as_ref()?.differences(chosen_a, chosen_b);
        Some(((&logs).mean(), (&logs).population_std_dev()))
    };
    let (by_a, by_b) = (answer(a)?, answer(b)?);
    let weights = [by_a, by_b].map(|(_, sd)| 1.0 / (sd * sd).max(1e-12));
    let mean = (weights[0] * by_a.0 + weights[1] * by_b.0) / (weights[0] + weights[1]);
    let sd = (weights[0] + weights[1]).powf(-0.5);
    let difference = |(mean, sd): (f64, f64)| Difference::around(mean, INTERVAL_95 * sd);
    Some(Preference {
        same: same_numbers(&chosen_a, &chosen_b) && chosen_a.switches == chosen_b.switches,
        a: chosen_a,
        b: chosen_b,
        by_a: difference(by_a),
        by_b: difference(by_b),
        together: difference((mean, sd)),
        contradiction: (by_a.0 - by_b.0).abs() > CONTRADICTION * by_a.1.hypot(by_b.1),
    })
}

fn chosen(review: &Review) -> Option<Setting> {
    review.best.as_ref().map(|best| best.choice.setting)
}

fn settings(review: &Review) -> Vec<Setting> {
    let groups = review.groups.iter().take(SETTINGS_MOST);
    groups.map(|of| review.trials[of[0]].setting).collect()
}

/// Whether the numbers are near; the logs may have different columns for switches.
fn same_numbers(a: &Setting, b: &Setting) -> bool {
    let switches = b.switches;
    let mut both = a.switches.iter().zip(&switches);
    let contradicts = both.any(|(a, b)| a.is_some() && b.is_some() && a != b);
    Setting { switches, ..*a }.is_near(b) && !contradicts
}

fn meet(a: [f64; 2], b: [f64; 2]) -> Option<[f64; 2]> {
    let both = [a[0].max(b[0]), a[1].min(b[1])];
    (both[0] <= both[1]).then_some(both)
}

fn spread([low, high]: [f64; 2]) -> Vec<f64> {
    let from = if low > 0.0 { low } else { high / 64.0 };
    geometric([from, high], PLACES)
}

fn correlation(a: &[f64], b: &[f64]) -> Option<f64> {
    let [sd_a, sd_b] = [a, b].map(|values| values.population_std_dev());
    (sd_a > FLAT && sd_b > FLAT).then(|| a.population_covariance(b) / (sd_a * sd_b))
}
