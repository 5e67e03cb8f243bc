//! Best setting of a search, and the part of its measured advantage that is due to chance.
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
use super::surface::Surface;
use super::trial::{INTERVAL_95, Measure, Search, Trial, Writer};
use ronde_job::percentile::{percentile, range};
use ronde_job::units;

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
    pub fn new(measure: Measure, mean: f64, sd: f64) -> Self {
        let ends = [-INTERVAL_95, INTERVAL_95].map(|scores| measure.value(mean + scores * sd));
        let [low, high] = range(ends);
        let value = measure.value(mean);
        Self { value, low, high }
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
        let mut changes: Vec<f64> = logs.into_iter().map(f64::exp_m1).collect();
        let mean = (&changes).mean();
        changes.sort_by(f64::total_cmp);
        let at = |share| percentile(&changes, share).unwrap_or(f64::NAN);
        let [low, high] = [0.025, 0.975].map(at);
        Self { mean, low, high }
    }

    /// From the mean of a log step time and the half-width of its interval.
    pub(super) fn around(mean: f64, half: f64) -> Self {
        let [mean, low, high] = [mean, mean - half, mean + half].map(f64::exp_m1);
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

    /// Formats the difference with its interval: `−20.0 % (−21.3 to −18.7 %)`.
    pub fn words(&self) -> String {
        units::change_within(self.mean, [self.low, self.high])
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
    /// Luck of the choice: the share of the measured score that is not expected again, or of the
    /// expected step time by which the measured one is shorter; negative if it was unlucky.
    pub luck: f64,
    /// The favourite: the tried setting with the best expected value; often the choice.
    pub favourite: Candidate,
    /// Whether the choice is the favourite.
    pub is_favourite: bool,
    /// Other settings that cannot be distinguished from the favourite, the most probable first.
    pub ties: Vec<Candidate>,
    /// Number of settings tried, with near settings counted once.
    pub settings: u64,
}

impl Best {
    pub(super) fn of(search: &Search, groups: &[Vec<usize>], surface: &Surface) -> Option<Self> {
        let trials = &search.trials;
        let chosen = choice(search)?;
        let setting = |group: &usize| trials[groups[*group][0]].setting;
        let settings = |of: &[usize]| of.iter().map(setting).collect::<Vec<_>>();
        let all = 0..groups.len();
        let chosen_group = all.clone().find(|group| setting(group).is_near(&chosen));
        // The most promising groups by the means of their trials, then by the surface.
        let logs = |group: usize| groups[group].iter().map(|&index| trials[index].log);
        let by_trials: Vec<f64> = all.clone().map(|group| logs(group).mean()).collect();
        // Those with the lowest values in ascending order, and the choice.
        let lowest_of = |mut order: Vec<usize>, most, value: &dyn Fn(usize) -> f64| {
            order.sort_by(|&a, &b| value(a).total_cmp(&value(b)));
            order.truncate(most);
            order.extend(chosen_group.filter(|of| !order.contains(of)));
            order
        };
        let order = lowest_of(all.collect(), SETTINGS_MOST, &|of| by_trials[of]);
        let expected = surface.at(&settings(&order)).into_iter();
        let expected: HashMap<usize, Expectation> = order.iter().copied().zip(expected).collect();
        let order = lowest_of(order, CANDIDATES_MOST, &|of| expected[&of].mean);

        let draws = surface.draws(&settings(&order));
        let winners: Vec<usize> = draws.iter().map(|draw| lowest(draw)).collect();
        let probability = |holds: &dyn Fn(&[f64], usize) -> bool| {
            let draws = draws.iter().zip(&winners);
            let count = draws.filter(|(draw, winner)| holds(draw, **winner)).count();
            count as f64 / winners.len().max(1) as f64
        };
        let candidate = |place: usize| {
            let group = order[place];
            let best = lowest(&logs(group).collect::<Vec<_>>());
            let Expectation { mean, sd } = expected[&group];
            Candidate {
                setting: setting(&group),
                trials: groups[group].len() as u64,
                measured: trials[groups[group][best]].value,
                expected: Estimate::new(search.measure, mean, sd),
                probability_best: probability(&|_, winner| winner == place),
                probability_good: probability(&|draw, winner| {
                    draw[place] - draw[winner] <= MATTERS
                }),
                slower: Difference::of(draws.iter().map(|draw| draw[place] - draw[0]).collect()),
            }
        };
        // Candidates are ordered by expected value, so the favourite is the first.
        let favourite = candidate(0);
        let chosen_place = order.iter().position(|&group| Some(group) == chosen_group);
        let choice = chosen_place.map_or_else(|| favourite.clone(), candidate);
        let others = (1..order.len()).map(candidate);
        let mut ties: Vec<Candidate> = others.filter(|other| other.slower.low <= 0.0).collect();
        ties.sort_by(|a, b| b.probability_best.total_cmp(&a.probability_best));
        Some(Self {
            // A verdict for a setting that the log did not measure cannot be judged.
            is_verdict: search.end.is_some() && chosen_place.is_some(),
            luck: luck(search, &choice),
            is_favourite: chosen_place == Some(0),
            choice,
            favourite,
            ties,
            settings: groups.len() as u64,
        })
    }
}

/// Returns the verdict of the log, otherwise Ronde's best so far, otherwise the best trial.
fn choice(search: &Search) -> Option<Setting> {
    let said = search.end.as_ref().or(search.best.as_ref());
    let best = || Some(records(&search.trials).last()?.setting);
    said.and_then(Setting::of).or_else(best)
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
    let worse = measured - search.measure.log(choice.expected.value);
    if worse.is_finite() {
        -worse.exp_m1()
    } else {
        0.0
    }
}

/// Index of the lowest value, the first one among equals.
pub(super) fn lowest(values: &[f64]) -> usize {
    let lowest = (0..values.len()).min_by(|&a, &b| values[a].total_cmp(&values[b]));
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
