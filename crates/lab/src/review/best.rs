//! Choice of a search, and how much of its measured advantage was luck.
//!
//! The best of many noisy trials was also lucky. So every setting that was tried is judged with the
//! surface. The surface gives the expected step time (shrunk towards its neighbours, depending on
//! the noise), the probability that the setting is the best of those tried, and the settings that
//! cannot be distinguished from it.

use std::collections::HashMap;

use ronde_tuner::Expectation;
use serde::Serialize;
use statrs::statistics::Statistics;

use super::setting::Setting;
use super::surface::{Surface, interval};
use super::trial::{Measure, Search, Trial, Writer};

/// Maximum number of settings that are compared, most promising first: a longer list is not
/// readable, and drawing surfaces becomes slow.
pub const CANDIDATES_MOST: usize = 120;
/// Maximum number of settings that the surface is evaluated at; if there are more, those with the
/// best mean.
const SETTINGS_MOST: usize = 2000;
/// A difference below this share of the step time does not matter.
pub(super) const MATTERS: f64 = 0.01;

/// A value with its 95 % interval, in the unit of the review's measure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// Best estimate.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

impl Estimate {
    /// From the mean and standard deviation of a normal log step time.
    pub(super) fn new(measure: Measure, mean: f64, sd: f64) -> Self {
        let ends = [-1.96, 1.96].map(|scores| measure.value(mean + scores * sd));
        Self {
            value: measure.value(mean),
            low: ends[0].min(ends[1]),
            high: ends[0].max(ends[1]),
        }
    }
}

/// Relative difference of two step times with its 95 % interval; above 0 is slower.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Difference {
    /// Mean.
    pub mean: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Difference {
    /// From samples of a difference of log step times.
    pub(super) fn of(logs: Vec<f64>) -> Self {
        let (mean, [low, high]) = interval(logs.into_iter().map(f64::exp_m1).collect());
        Self { mean, low, high }
    }

    /// Converts a gain to a change of the step time, or back.
    pub fn reversed(&self) -> Self {
        Self {
            mean: -self.mean,
            low: -self.high,
            high: -self.low,
        }
    }
}

/// A setting that was tried, with its estimates from the surface.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Candidate {
    /// The setting.
    pub setting: Setting,
    /// Number of its trials.
    pub trials: u64,
    /// Best value that was measured.
    pub measured: f64,
    /// Expected value.
    pub expected: Estimate,
    /// Probability that it is the best of the settings tried.
    pub probability_best: f64,
    /// Probability that it is within 1 % of the best of the settings tried.
    pub probability_good: f64,
    /// How much slower it is than the favourite.
    pub slower: Difference,
}

/// Choice of a search (so far, if it is unfinished), and the judgement on it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Best {
    /// The choice: the verdict of a finished search, otherwise the best so far.
    pub choice: Candidate,
    /// Whether the log contains it as its verdict.
    pub is_verdict: bool,
    /// Luck of the choice: how much better its measured value is than its expected value, as a
    /// share.
    pub luck: f64,
    /// The favourite: the tried setting with the best expected value; often the choice.
    pub favourite: Candidate,
    /// Whether the choice is the favourite.
    pub is_favourite: bool,
    /// Settings that cannot be distinguished from the favourite, without it; the most probable
    /// first.
    pub ties: Vec<Candidate>,
    /// Number of settings tried, with near settings counted once.
    pub settings: u64,
}

impl Best {
    /// Judges a search; `None` without trials.
    pub(super) fn of(search: &Search, groups: &[Vec<usize>], surface: &Surface) -> Option<Self> {
        let trials = &search.trials;
        let chosen = choice(search)?;
        let firsts: Vec<Setting> = groups
            .iter()
            .map(|group| trials[group[0]].setting)
            .collect();
        let chosen_group = firsts.iter().position(|first| first.is_near(&chosen));
        let mut order = promising(trials, groups);
        if let Some(group) = chosen_group.filter(|group| !order.contains(group)) {
            order.push(group);
        }
        let settings: Vec<Setting> = order.iter().map(|&group| firsts[group]).collect();
        let expected: HashMap<usize, Expectation> =
            order.iter().copied().zip(surface.at(&settings)).collect();
        order.sort_by(|a, b| expected[a].mean.total_cmp(&expected[b].mean));
        order.truncate(CANDIDATES_MOST);
        if let Some(group) = chosen_group.filter(|group| !order.contains(group)) {
            order.push(group);
        }

        let settings: Vec<Setting> = order.iter().map(|&group| firsts[group]).collect();
        let draws = surface.draws(&settings);
        let mut wins = vec![0u32; order.len()];
        let mut near = vec![0u32; order.len()];
        for draw in &draws {
            let winner = lowest(draw);
            wins[winner] += 1;
            for (count, value) in near.iter_mut().zip(draw) {
                *count += u32::from(value - draw[winner] <= MATTERS);
            }
        }
        let share = |count: u32| f64::from(count) / draws.len().max(1) as f64;
        let candidate = |place: usize| {
            let group = &groups[order[place]];
            let logs: Vec<f64> = group.iter().map(|&index| trials[index].log).collect();
            let measured = trials[group[lowest(&logs)]].value;
            let expected = expected[&order[place]];
            Candidate {
                setting: settings[place],
                trials: group.len() as u64,
                measured,
                expected: Estimate::new(search.measure, expected.mean, expected.sd),
                probability_best: share(wins[place]),
                probability_good: share(near[place]),
                slower: Difference::of(draws.iter().map(|draw| draw[place] - draw[0]).collect()),
            }
        };
        // Candidates are ordered by expected value, so the favourite is the first.
        let favourite = candidate(0);
        let chosen_place =
            chosen_group.and_then(|group| order.iter().position(|&other| other == group));
        let choice = chosen_place.map_or_else(|| favourite.clone(), &candidate);
        let luck = luck(search, &choice);
        let mut ties: Vec<Candidate> = (1..order.len())
            .map(candidate)
            .filter(|other| other.slower.low <= 0.0)
            .collect();
        ties.sort_by(|a, b| b.probability_best.total_cmp(&a.probability_best));
        Some(Self {
            is_verdict: search.end.is_some(),
            luck,
            is_favourite: chosen_place == Some(0),
            choice,
            favourite,
            ties,
            settings: groups.len() as u64,
        })
    }
}

/// Returns the groups to judge, in order: all of them, or, if there are too many, those with the
/// best means.
fn promising(trials: &[Trial], groups: &[Vec<usize>]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..groups.len()).collect();
    if order.len() > SETTINGS_MOST {
        let mean = |group: &usize| groups[*group].iter().map(|&index| trials[index].log).mean();
        order.sort_by(|a, b| mean(a).total_cmp(&mean(b)));
        order.truncate(SETTINGS_MOST);
        order.sort_unstable();
    }
    order
}

/// Returns the best setting according to the log: the verdict, otherwise Ronde's best so far,
/// otherwise the best trial.
fn choice(search: &Search) -> Option<Setting> {
    let said = search
        .end
        .as_ref()
        .or(search.best.as_ref())
        .and_then(Setting::of);
    let best = || {
        let logs: Vec<f64> = search.trials.iter().map(|trial| trial.log).collect();
        (!logs.is_empty()).then(|| search.trials[lowest(&logs)].setting)
    };
    said.or_else(best)
}

/// Returns how much better the measured value of the choice is than its expected value. For
/// Horovod it is the best trial. For Ronde, which decides by the windows, it is the mean.
fn luck(search: &Search, choice: &Candidate) -> f64 {
    let trials = search.trials.iter();
    let at_choice = trials.filter(|trial| trial.setting.is_near(&choice.setting));
    let logs: Vec<f64> = at_choice.map(|trial| trial.log).collect();
    let measured = match search.writer {
        Writer::Horovod => logs.into_iter().fold(f64::INFINITY, f64::min),
        Writer::Ronde => logs.mean(),
    };
    let expected = search.measure.log(choice.expected.value);
    if measured.is_finite() {
        (expected - measured).exp_m1()
    } else {
        0.0
    }
}

/// Index of the lowest value, the first one among equals.
pub(super) fn lowest(values: &[f64]) -> usize {
    let places = 0..values.len();
    let lowest = places.min_by(|&a, &b| values[a].total_cmp(&values[b]));
    lowest.unwrap_or(0)
}

/// Trials that were better than all trials before them.
pub(super) fn records(trials: &[Trial]) -> Vec<&Trial> {
    let mut records: Vec<&Trial> = Vec::new();
    for trial in trials {
        if records.last().is_none_or(|best| trial.log < best.log) {
            records.push(trial);
        }
    }
    records
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::review::tests::reviewed;
    use crate::review::trial::tests::{HOROVOD, RONDE, read};

    fn best(header: &str, rows: &str) -> Best {
        reviewed(header, rows).best.unwrap()
    }

    #[test]
    fn the_luckiest_of_many_equals_is_not_believed() {
        // One setting repeated, and one trial of a neighbour that was 20 % better.
        let mut rows = String::new();
        for i in 0..20 {
            rows += &format!(
                "0,0,0, 1,{},{},{}\n",
                5.0 + 0.3 * f64::from(i),
                16.0,
                500 + 30 * (i % 3) - 30
            );
        }
        rows += "0,0,0, 1,8,17,620\n";
        let best = best(HOROVOD, &rows);
        assert_eq!((best.choice.measured, best.is_verdict), (620.0, false));
        assert!(
            (490.0..550.0).contains(&best.choice.expected.value),
            "{:?}",
            best.choice
        );
        assert!(
            best.luck > 0.1 && best.choice.probability_best < 0.7,
            "{best:?}"
        );
        assert!(best.ties.len() > 10, "{}", best.ties.len());
    }

    #[test]
    fn a_clear_winner_is_believed() {
        let mut rows = String::new();
        for (fusion, score) in [(1, 200), (4, 300), (16, 400), (64, 500)] {
            for repeat in 0..5 {
                rows += &format!("0,0,0, 1,5,{fusion},{}\n", score + repeat);
            }
        }
        let best = best(HOROVOD, &rows);
        assert!(
            best.is_favourite && best.choice.probability_best > 0.99,
            "{best:?}"
        );
        assert!(
            best.choice.probability_good >= best.choice.probability_best,
            "{best:?}"
        );
        assert!(
            best.ties.is_empty() && best.luck.abs() < 0.02 && best.settings == 4,
            "{best:?}"
        );
        assert_eq!(best.choice.setting.fusion_mb, 64.0);
    }

    #[test]
    fn rondes_verdict_is_the_choice() {
        let best = best(
            RONDE,
            "0,0,0,1,1,128,500,default,0,10,61.2,0.6,,0.02\n0,0,0,1,1,4,600,sample,1,8,61.3,0.5,50.4,0.02\n\
             0,0,0,1,1,128,500,final,,40,61.2,,,0.02\n0,0,0,1,1,128,500,best,,40,61.2,,,0.02\n",
        );
        assert!(best.is_verdict && best.choice.setting.fusion_mb == 128.0);
        assert!(best.luck.abs() < 0.01, "{best:?}");
    }

    #[test]
    fn records_by_hand() {
        let search = &read(
            HOROVOD,
            "0,0,0, 1,5,4,10\n0,0,0, 1,6,4,9\n0,0,0, 1,7,4,12\n",
        )[0];
        let lines: Vec<u64> = records(&search.trials)
            .iter()
            .map(|trial| trial.line)
            .collect();
        assert_eq!(lines, [2, 4]);
    }
}
