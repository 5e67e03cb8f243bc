//! Two searches side by side: what both tried, where they agree, and whose choice is better.
//!
//! Levels need not be comparable: another job, another day, another network. What carries over is by how much settings differ. So each
//! search is asked, through its own surface, how the two choices compare, and the answers are weighed by their variances.

use serde::Serialize;

use super::best::Difference;
use super::setting::Setting;
use super::{Review, Surface};

/// HostLayout by which two surfaces are compared, in each direction of the range that both tried.
const PLACES: usize = 6;
/// Settings of either that are looked for among the other's: every pair is looked at.
const SETTINGS_MOST: usize = 1000;
/// A surface that varies less than this, as a standard deviation, has no shape to agree with.
const FLAT: f64 = 0.005;
/// Standard deviations between two answers from which they contradict each other.
const CONTRADICTION: f64 = 2.0;

/// Two searches side by side.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The first log.
    pub a: String,
    /// The second.
    pub b: String,
    /// What both tried.
    pub overlap: Overlap,
    /// Whose choice is better; none where a search chose nothing.
    pub preference: Option<Preference>,
}

/// What two searches have in common.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Overlap {
    /// Settings that both tried, within 1 %.
    pub settings: u64,
    /// Thresholds that lie in both ranges, MiB; none if these do not meet.
    pub fusion_mb: Option<[f64; 2]>,
    /// Cycle times likewise, ms.
    pub cycle_ms: Option<[f64; 2]>,
    /// How alike the surfaces are where both tried, −1 to 1; none where one of them is flat.
    pub correlation: Option<f64>,
    /// How much slower the second is there, on average; none where the logs measure different things.
    pub slower: Option<Difference>,
}

/// How the choice of the second compares with that of the first: step times, above 0 is slower.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Preference {
    /// The first one's choice.
    pub a: Setting,
    /// The second one's.
    pub b: Setting,
    /// Whether these are the same for all that can be told.
    pub same: bool,
    /// What the first log says.
    pub by_a: Difference,
    /// What the second says.
    pub by_b: Difference,
    /// Both together.
    pub together: Difference,
    /// Whether they contradict each other.
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
    let of_a = settings(a);
    let settings = settings(b)
        .iter()
        .filter(|b| of_a.iter().any(|a| same_numbers(a, b)))
        .count();
    let fusion_mb = meet(tried_a.fusion_mb, tried_b.fusion_mb);
    let cycle_ms = meet(tried_a.cycle_ms, tried_b.cycle_ms);
    let mut overlap = Overlap {
        settings: settings as u64,
        fusion_mb,
        cycle_ms,
        ..Overlap::default()
    };
    let (Some(fusion), Some(cycle)) = (fusion_mb, cycle_ms) else {
        return Some(overlap);
    };
    // Each with the switches of its own choice.
    let of = |review: &Review, surface: &Surface| -> Vec<f64> {
        let switches = chosen(review).map_or([None; 4], |setting| setting.switches);
        let places: Vec<Setting> = spread(fusion)
            .into_iter()
            .flat_map(|fusion_mb| {
                spread(cycle).into_iter().map(move |cycle_ms| Setting {
                    fusion_mb,
                    cycle_ms,
                    switches,
                })
            })
            .collect();
        surface
            .at(&places)
            .into_iter()
            .map(|expected| expected.mean)
            .collect()
    };
    let (means_a, means_b) = (of(a, surface_a), of(b, surface_b));
    overlap.correlation = correlation(&means_a, &means_b);
    // Whether scores are of jobs that move the same bytes, no log tells; they are taken as they are.
    overlap.slower = (a.measure == b.measure).then(|| {
        let logs = means_a.iter().zip(&means_b).map(|(a, b)| b - a);
        Difference::of(logs.collect())
    });
    Some(overlap)
}

fn preference(a: &Review, b: &Review) -> Option<Preference> {
    let (chosen_a, chosen_b) = (chosen(a)?, chosen(b)?);
    let (by_a, by_b) = (answer(a, chosen_a, chosen_b)?, answer(b, chosen_a, chosen_b)?);
    let weights = [by_a, by_b].map(|(_, sd)| 1.0 / (sd * sd).max(1e-12));
    let mean = (weights[0] * by_a.0 + weights[1] * by_b.0) / (weights[0] + weights[1]);
    let sd = (weights[0] + weights[1]).powf(-0.5);
    let difference = |(mean, sd): (f64, f64)| Difference {
        mean: mean.exp_m1(),
        low: (mean - 1.96 * sd).exp_m1(),
        high: (mean + 1.96 * sd).exp_m1(),
    };
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

/// What a search's surface says of ln(step time) at `second` less that at `first`: mean and standard deviation.
fn answer(review: &Review, first: Setting, second: Setting) -> Option<(f64, f64)> {
    let draws = review.surface.as_ref()?.draws(&[first, second]);
    let logs: Vec<f64> = draws
        .iter()
        .filter_map(|draw| Some(draw.get(1)? - draw.first()?))
        .collect();
    let count = logs.len() as f64;
    let mean = logs.iter().sum::<f64>() / count;
    let square = logs.iter().map(|log| (log - mean) * (log - mean)).sum::<f64>();
    Some((mean, (square / count).sqrt())).filter(|_| count > 0.0)
}

fn chosen(review: &Review) -> Option<Setting> {
    review.best.as_ref().map(|best| best.choice.setting)
}

/// Settings tried, each once, the first thousand.
fn settings(review: &Review) -> Vec<Setting> {
    let firsts = review.groups.iter().take(SETTINGS_MOST);
    firsts.map(|group| review.trials[group[0]].setting).collect()
}

/// Near on the numbers, whatever columns the two logs have for switches.
fn same_numbers(a: &Setting, b: &Setting) -> bool {
    let alike = Setting {
        switches: b.switches,
        ..*a
    };
    let contradicts = a
        .switches
        .iter()
        .zip(&b.switches)
        .any(|(a, b)| a.is_some() && b.is_some() && a != b);
    alike.is_near(b) && !contradicts
}

fn meet(a: [f64; 2], b: [f64; 2]) -> Option<[f64; 2]> {
    let both = [a[0].max(b[0]), a[1].min(b[1])];
    (both[0] <= both[1]).then_some(both)
}

/// HostLayout a factor apart over a range.
fn spread([low, high]: [f64; 2]) -> Vec<f64> {
    let from = if low > 0.0 { low } else { high / 64.0 };
    if !(from > 0.0 && high > from) {
        return vec![high];
    }
    let ratio = (high / from).ln() / (PLACES - 1) as f64;
    (0..PLACES)
        .map(|place| from * (ratio * place as f64).exp())
        .collect()
}

fn correlation(a: &[f64], b: &[f64]) -> Option<f64> {
    let count = a.len().min(b.len()) as f64;
    let mean = |values: &[f64]| values.iter().sum::<f64>() / count;
    let (mean_a, mean_b) = (mean(a), mean(b));
    let (mut both, mut square_a, mut square_b) = (0.0, 0.0, 0.0);
    for (a, b) in a.iter().zip(b) {
        both += (a - mean_a) * (b - mean_b);
        square_a += (a - mean_a) * (a - mean_a);
        square_b += (b - mean_b) * (b - mean_b);
    }
    let has_shape = |square: f64| (square / count).sqrt() > FLAT;
    (has_shape(square_a) && has_shape(square_b)).then(|| both / (square_a * square_b).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::review::tests::reviewed;
    use crate::review::trial::tests::HOROVOD;

    /// Thresholds from 1 to 64 MB at 1 and 8 ms.
    fn log(score: &dyn Fn(f64) -> f64) -> Review {
        let mut rows = String::new();
        for fusion in [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0] {
            for cycle in [1.0, 8.0] {
                rows += &format!(
                    "0,0,0, 1,{cycle},{fusion},{}\n",
                    score(fusion) * (1.0 + 0.001 * (fusion + cycle).sin())
                );
            }
        }
        reviewed(HOROVOD, &rows)
    }

    #[test]
    fn two_logs_of_one_job() {
        let a = log(&|fusion| 500.0 + 50.0 * fusion.log2());
        let b = log(&|fusion| 400.0 + 40.0 * fusion.log2());
        let comparison = compare(&a, &b);
        assert_eq!(
            (comparison.overlap.settings, comparison.overlap.fusion_mb),
            (14, Some([1.0, 64.0]))
        );
        assert!(comparison.overlap.correlation.unwrap() > 0.98);
        // Scores lower by a fifth: steps longer by a quarter.
        assert!((comparison.overlap.slower.unwrap().mean - 0.25).abs() < 0.01);
        let preference = comparison.preference.unwrap();
        assert!(
            preference.together.mean.abs() < 0.01 && !preference.contradiction,
            "{preference:?}"
        );
    }

    #[test]
    fn opposite_logs_contradict_each_other() {
        let a = log(&|fusion| 500.0 + 50.0 * fusion.log2());
        let b = log(&|fusion| 500.0 - 50.0 * fusion.log2());
        let comparison = compare(&a, &b);
        assert!(comparison.overlap.correlation.unwrap() < -0.9);
        let preference = comparison.preference.unwrap();
        assert!(preference.contradiction && !preference.same, "{preference:?}");
        assert!(
            preference.by_a.low > 0.0 && preference.by_b.high < 0.0,
            "{preference:?}"
        );
    }

    #[test]
    fn logs_without_trials_or_without_anything_in_common() {
        let (empty, one) = (reviewed(HOROVOD, ""), log(&|_| 500.0));
        let comparison = compare(&empty, &one);
        assert_eq!(
            (comparison.overlap, comparison.preference),
            (Overlap::default(), None)
        );
        let far = reviewed(HOROVOD, "0,0,0, 1,50,100,500\n0,0,0, 1,60,120,510\n");
        assert_eq!(compare(&far, &one).overlap.fusion_mb, None);
        assert_eq!(correlation(&[0.0, 0.0], &[1.0, 2.0]), None);
        assert!((correlation(&[1.0, 2.0, 3.0], &[2.0, 4.0, 6.0]).unwrap() - 1.0).abs() < 1e-12);
    }
}
