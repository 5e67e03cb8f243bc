//! What was chosen, and whether that was luck.
//!
//! The best of many noisy trials was also lucky. So each setting tried is judged by the whole surface: what is expected there
//! (shrunk towards its neighbours by what the noise deserves), how probable it is that it is the best of those tried, and which
//! others cannot be told from it.

use std::collections::HashMap;

use ronde_tuner::Expectation;
use serde::Serialize;

use super::setting::Setting;
use super::surface::{Surface, interval};
use super::trial::{Measure, Search, Trial, Writer};

/// Settings that are compared, the most promising: beyond, nobody reads on, and surfaces become dear.
pub const CANDIDATES_MOST: usize = 120;
/// Settings that the surface is asked about: of more, those that were best on average.
const SETTINGS_MOST: usize = 2000;
/// A difference below this share of the step time is none that matters.
pub(super) const MATTERS: f64 = 0.01;

/// A value with its 95 % interval, in the unit of the review's measure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The estimate.
    pub value: f64,
    /// The worse end of the interval or the better one: the smaller number.
    pub low: f64,
    /// The larger number.
    pub high: f64,
}

impl Estimate {
    /// Of a normal log step time.
    pub(super) fn new(measure: Measure, mean: f64, sd: f64) -> Self {
        let ends = [-1.96, 1.96].map(|scores| measure.value(mean + scores * sd));
        Self {
            value: measure.value(mean),
            low: ends[0].min(ends[1]),
            high: ends[0].max(ends[1]),
        }
    }
}

/// A difference of step times as a share of the smaller one's setting, with its 95 % interval; above 0 is slower.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// Its mean.
    pub mean: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Difference {
    /// Of differences of log step times.
    pub(super) fn of(logs: Vec<f64>) -> Self {
        let (mean, [low, high]) = interval(logs.into_iter().map(f64::exp_m1).collect());
        Self { mean, low, high }
    }
}

/// A setting that was tried, as the surface sees it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Candidate {
    /// The setting.
    pub setting: Setting,
    /// How often it was tried.
    pub trials: u64,
    /// The best that was measured there.
    pub measured: f64,
    /// What is expected there.
    pub expected: Estimate,
    /// Probability that it is the best of the settings tried.
    pub probability_best: f64,
    /// Probability that it is within 1 % of the best of the settings tried.
    pub probability_good: f64,
    /// How much slower it is than the favourite.
    pub slower: Difference,
}

/// What the search chose, or would choose, and the judgement on that.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Best {
    /// The choice: the verdict of a finished search, else the best so far.
    pub choice: Candidate,
    /// Whether the log names it as its verdict.
    pub is_verdict: bool,
    /// Measured at the choice by the trial it was chosen for, as a share better than what is expected there: its luck.
    pub luck: f64,
    /// The setting tried of which most is expected; often the choice.
    pub favourite: Candidate,
    /// Whether that is the choice.
    pub is_favourite: bool,
    /// The settings that cannot be told from the favourite, it not among them; the most probable first.
    pub ties: Vec<Candidate>,
    /// Settings tried, near ones as one.
    pub settings: u64,
}

impl Best {
    /// The judgement on a search; none without a trial.
    pub(super) fn of(search: &Search, groups: &[Vec<usize>], surface: &Surface) -> Option<Self> {
        let trials = &search.trials;
        let chosen = choice(search)?;
        let firsts: Vec<Setting> = groups.iter().map(|group| trials[group[0]].setting).collect();
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
        // The order is by what is expected, so the favourite comes first.
        let favourite = candidate(0);
        let chosen_place = chosen_group.and_then(|group| order.iter().position(|&other| other == group));
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

/// The groups that are worth judging, in order: all of them, or of very many those of the best means.
fn promising(trials: &[Trial], groups: &[Vec<usize>]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..groups.len()).collect();
    if order.len() > SETTINGS_MOST {
        let mean = |group: &usize| {
            let logs = groups[*group].iter().map(|&index| trials[index].log);
            logs.sum::<f64>() / groups[*group].len() as f64
        };
        order.sort_by(|a, b| mean(a).total_cmp(&mean(b)));
        order.truncate(SETTINGS_MOST);
        order.sort_unstable();
    }
    order
}

/// What the log says is best: the verdict, else Ronde's best so far, else the best trial.
fn choice(search: &Search) -> Option<Setting> {
    let said = search.end.as_ref().or(search.best.as_ref()).and_then(Setting::of);
    let best = || {
        let logs: Vec<f64> = search.trials.iter().map(|trial| trial.log).collect();
        (!logs.is_empty()).then(|| search.trials[lowest(&logs)].setting)
    };
    said.or_else(best)
}

/// How much better the trial that decided was than what is expected there. Ronde goes by the windows, not by the best trial.
fn luck(search: &Search, choice: &Candidate) -> f64 {
    let at_choice = || {
        search
            .trials
            .iter()
            .filter(|trial| trial.setting.is_near(&choice.setting))
    };
    let measured = match search.writer {
        Writer::Horovod => at_choice().map(|trial| trial.log).fold(f64::INFINITY, f64::min),
        Writer::Ronde => {
            let logs: Vec<f64> = at_choice().map(|trial| trial.log).collect();
            logs.iter().sum::<f64>() / logs.len().max(1) as f64
        }
    };
    let expected = search.measure.log(choice.expected.value);
    if measured.is_finite() {
        (expected - measured).exp_m1()
    } else {
        0.0
    }
}

/// Index of the lowest value, the first of equals.
pub(super) fn lowest(values: &[f64]) -> usize {
    let mut best = 0;
    for (index, value) in values.iter().enumerate() {
        if *value < values[best] {
            best = index;
        }
    }
    best
}

/// The best of all trials so far, at each of them that is better than all before.
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
    use crate::review::noise::groups;
    use crate::review::trial::tests::{HOROVOD, RONDE, read};

    fn best(header: &str, rows: &str) -> Best {
        let search = &read(header, rows)[0];
        let groups = groups(&search.trials);
        Best::of(search, &groups, &Surface::fit(search).unwrap()).unwrap()
    }

    #[test]
    fn the_luckiest_of_many_equals_is_not_believed() {
        // One setting again and again, and one trial of a neighbour that was 20 % better.
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
        assert!(best.luck > 0.1 && best.choice.probability_best < 0.7, "{best:?}");
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
        let search = &read(HOROVOD, "0,0,0, 1,5,4,10\n0,0,0, 1,6,4,9\n0,0,0, 1,7,4,12\n")[0];
        let lines: Vec<u64> = records(&search.trials).iter().map(|trial| trial.line).collect();
        assert_eq!(lines, [2, 4]);
    }
}
