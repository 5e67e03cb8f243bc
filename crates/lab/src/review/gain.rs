//! Gain of the choice over the default, from interleaved windows or from all trials.

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};
use statrs::statistics::Statistics;

use super::best::{Best, Difference};
use super::setting::Setting;
use super::surface::Surface;
use super::trial::{INTERVAL_95, Phase, Search, Trial};

/// Minimum number of rounds for an estimate of the scatter between rounds.
const ROUNDS_FOR_SCATTER: usize = 3;
/// Defaults of Ronde and of Horovod, MiB and ms; Horovod's holds until its releases of 2020.
const DEFAULTS: [(f64, f64); 2] = [(128.0, 1.0), (64.0, 5.0)];

/// Contest: a comparison of a setting with the default in alternating windows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Contest {
    /// The challenger: the setting that is compared with the default.
    pub challenger: Setting,
    /// The setting that it was compared with, if that was not the default but an earlier winner.
    /// The gain is still relative to the default: the gain of the earlier winner plus the
    /// difference measured here.
    pub against: Option<Setting>,
    /// Number of rounds in which both settings have a window.
    pub rounds: u64,
    /// Step time of the default: mean of the medians, ms.
    pub default_ms: f64,
    /// Step time of the challenger: mean of the medians, ms.
    pub challenger_ms: f64,
    /// Gain of the challenger, as a share of the default's step time; negative if it is slower.
    pub gain: Difference,
    /// Gain of the challenger over `against` in each round, in order.
    pub by_round: Vec<f64>,
}

/// Comparison of a search's choice with the default.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Gain {
    /// The default, if it was measured.
    pub default: Option<Setting>,
    /// The contests, in order; the last one is decisive.
    pub contests: Vec<Contest>,
    /// Gain of the choice from all trials of the search, as a share of the default's step time.
    pub by_trials: Option<Difference>,
}

impl Gain {
    /// Computes the gain of a search; `best` is the judgement on its choice.
    pub(super) fn of(search: &Search, best: Option<&Best>, surface: Option<&Surface>) -> Self {
        let Some(default) = default(search) else {
            return Self::default();
        };
        let by_trials = best.zip(surface).map(|(best, surface)| {
            let draws = surface.draws(&[best.choice.setting, default]);
            let logs: Vec<f64> = draws.iter().map(|draw| draw[0] - draw[1]).collect();
            Difference::of(logs).reversed()
        });
        Self {
            contests: contests(search, &default),
            default: Some(default),
            by_trials,
        }
    }

    /// Returns the contest that decided for `chosen`, or else the last contest.
    pub(super) fn decisive(&self, chosen: Option<&Setting>) -> Option<&Contest> {
        chosen
            .and_then(|chosen| self.contest_of(chosen))
            .or(self.contests.last())
    }

    /// Returns the last contest of this setting, if there was one.
    pub fn contest_of(&self, setting: &Setting) -> Option<&Contest> {
        last_of(&self.contests, setting)
    }

    /// Whether the setting is the default, and the default was measured.
    pub fn is_default(&self, setting: &Setting) -> bool {
        self.default.is_some_and(|default| default.is_near(setting))
    }
}

fn last_of<'a>(contests: &'a [Contest], challenger: &Setting) -> Option<&'a Contest> {
    let mut contests = contests.iter();
    contests.rfind(|contest| contest.challenger.is_near(challenger))
}

/// Returns the default of a search if it was measured: the one that Ronde's log names, or Horovod's
/// own.
pub(super) fn default(search: &Search) -> Option<Setting> {
    let find = |is_it: &dyn Fn(&Trial) -> bool| search.trials.iter().find(|trial| is_it(trial));
    let said = find(&|trial| trial.phase == Phase::Default);
    let known =
        || find(&|trial| DEFAULTS.contains(&(trial.setting.fusion_mb, trial.setting.cycle_ms)));
    // A resumed search begins with the windows: first the remembered winner's, then the default's.
    let second = || {
        let first = find(&|trial| trial.phase == Phase::Ab)?.setting;
        find(&|trial| trial.phase == Phase::Ab && !trial.setting.is_near(&first))
    };
    Some(said.or_else(known).or_else(second)?.setting)
}

/// Splits trials into contests and the trials before, between and after them: a contest is a run of
/// windows. Another one begins with a window of round 0 after a complete round.
pub(super) fn chunks(trials: &[Trial]) -> impl Iterator<Item = &[Trial]> {
    let mut of_round_0 = 0;
    trials.chunk_by(move |trial, next| {
        of_round_0 = match (trial.phase, trial.number) {
            (Phase::Ab, 0) => of_round_0 + 1,
            _ => 0,
        };
        let is_complete = of_round_0 % 2 == 0;
        let begins = next.phase == Phase::Ab && next.number == 0 && is_complete;
        (trial.phase == Phase::Ab) == (next.phase == Phase::Ab) && !begins
    })
}

fn contests(search: &Search, default: &Setting) -> Vec<Contest> {
    let mut known: Vec<Contest> = Vec::new();
    for windows in chunks(&search.trials).filter(|chunk| chunk[0].phase == Phase::Ab) {
        known.extend(contest(windows, default, &known));
    }
    known
}

fn contest(windows: &[Trial], default: &Setting, before: &[Contest]) -> Option<Contest> {
    // Without the default, the setting that has beaten it comes first.
    let champion = match windows.iter().any(|trial| trial.setting.is_near(default)) {
        true => None,
        false => Some(last_of(before, &windows.first()?.setting)?),
    };
    let base = champion.map_or(*default, |champion| champion.challenger);
    let is_base = |trial: &Trial| trial.setting.is_near(&base);
    let challenger = windows.iter().find(|trial| !is_base(trial))?.setting;
    let window = |number: u64, of_base: bool| {
        windows
            .iter()
            .find(|trial| trial.number == number && is_base(trial) == of_base)
    };
    let last = windows.iter().map(|trial| trial.number).max()?;
    let rounds = (0..=last.min(windows.len() as u64))
        .filter_map(|number| Some([window(number, true)?, window(number, false)?]));
    let rounds: Vec<[&Trial; 2]> = rounds.collect();
    if rounds.is_empty() {
        return None;
    }
    let count = rounds.len() as f64;
    let of_rounds = |of: fn(&[&Trial; 2]) -> f64| rounds.iter().map(of).collect::<Vec<f64>>();
    let logs = of_rounds(|[base, winner]| winner.log - base.log);
    let stated: f64 = of_rounds(|[base, winner]| base.variance + winner.variance)
        .iter()
        .sum();
    let half = (INTERVAL_95 * stated.sqrt() / count).max(scattered(&logs));
    // The sum of two differences: that of the earlier winner, and that of the challenger relative
    // to it.
    let (ahead, ahead_half) = champion.map_or((0.0, 0.0), Contest::log_difference);
    let (mean, half) = ((&logs).mean() + ahead, half.hypot(ahead_half));
    Some(Contest {
        challenger,
        against: champion.map(|champion| champion.challenger),
        rounds: rounds.len() as u64,
        default_ms: (of_rounds(|[base, _]| base.log).mean() - ahead).exp(),
        challenger_ms: of_rounds(|[_, winner]| winner.log).mean().exp(),
        gain: Difference::around(mean, half).reversed(),
        by_round: logs.iter().map(|log| -log.exp_m1()).collect(),
    })
}

impl Contest {
    /// Difference of the log step times, challenger less default, and half the width of its 95 %
    /// interval.
    fn log_difference(&self) -> (f64, f64) {
        let [mean, low, high] =
            [self.gain.mean, self.gain.low, self.gain.high].map(|gain| (-gain).ln_1p());
        (mean, (low - high) / 2.0)
    }
}

/// Half the width of the 95 % interval from the scatter of the rounds; 0 if there are too few
/// rounds.
fn scattered(logs: &[f64]) -> f64 {
    if logs.len() < ROUNDS_FOR_SCATTER {
        return 0.0;
    }
    let count = logs.len() as f64;
    let quantile = StudentsT::new(0.0, 1.0, count - 1.0).map_or(f64::NAN, |t| t.inverse_cdf(0.975));
    let half = quantile * logs.std_dev() / count.sqrt();
    if half.is_finite() { half } else { 0.0 }
}
