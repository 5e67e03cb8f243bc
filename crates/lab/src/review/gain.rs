//! Gain of the choice over the default, from interleaved windows or from all trials.

use serde::Serialize;
use statrs::statistics::Statistics;

use super::best::{Best, Difference};
use super::setting::Setting;
use super::surface::Surface;
use super::trial::{INTERVAL_95, Phase, Search, Trial};
use crate::sweep::{LEVEL, statistics::critical};

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
    pub(super) fn of(search: &Search, best: Option<&Best>, surface: Option<&Surface>) -> Self {
        let Some(default) = default(search) else {
            return Self::default();
        };
        let by_trials = best.zip(surface).map(|(best, surface)| {
            let logs = surface.differences(best.choice.setting, default);
            Difference::of(logs.into_iter().map(|log| -log).collect()).reversed()
        });
        let mut contests = Vec::new();
        for windows in chunks(&search.trials).filter(|chunk| chunk[0].phase == Phase::Ab) {
            contests.extend(contest(windows, &default, &contests));
        }
        Self {
            contests,
            default: Some(default),
            by_trials,
        }
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

/// Returns the default if it was measured: the one that Ronde's log names, or Horovod's own.
pub(super) fn default(search: &Search) -> Option<Setting> {
    let trials = || search.trials.iter();
    let said = trials().find(|trial| trial.phase == Phase::Default);
    let is_known = |of: &Setting| DEFAULTS.contains(&(of.fusion_mb, of.cycle_ms));
    let known = || trials().find(|trial| is_known(&trial.setting));
    // A resumed search begins with the windows: first the remembered winner's, then the default's.
    let mut windows = trials().filter(|trial| trial.phase == Phase::Ab);
    let second = || {
        let first = windows.next()?.setting;
        windows.find(|trial| !trial.setting.is_near(&first))
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
        let mut windows = windows.iter();
        windows.find(|trial| trial.number == number && is_base(trial) == of_base)
    };
    let round = |number| Some([window(number, true)?, window(number, false)?]);
    let rounds: Vec<[&Trial; 2]> = (0..=windows.len() as u64).filter_map(round).collect();
    if rounds.is_empty() {
        return None;
    }
    let count = rounds.len() as f64;
    let of_rounds = |of: fn(&[&Trial; 2]) -> f64| rounds.iter().map(of).collect::<Vec<f64>>();
    let logs = of_rounds(|[base, winner]| winner.log - base.log);
    let stated = of_rounds(|[base, winner]| base.variance() + winner.variance());
    let stated = stated.iter().sum::<f64>().sqrt() / count;
    let half = (INTERVAL_95 * stated).max(scattered(&logs));
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
    /// Log step time of the challenger less the default's, and half the width of its interval.
    fn log_difference(&self) -> (f64, f64) {
        let Difference { mean, low, high } = self.gain;
        let [mean, low, high] = [mean, low, high].map(|gain| (-gain).ln_1p());
        (mean, (low - high) / 2.0)
    }
}

/// Half the width of the 95 % interval by the scatter of the rounds; 0 with too few rounds.
fn scattered(logs: &[f64]) -> f64 {
    match logs.len() {
        count if count < ROUNDS_FOR_SCATTER => 0.0,
        count => critical(1, count - 1, LEVEL) * logs.std_dev() / (count as f64).sqrt(),
    }
}
