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
        self.contests
            .iter()
            .rev()
            .find(|contest| contest.challenger.is_near(setting))
    }
}

/// Returns the default of a search if it was measured: the one that Ronde's log names, or Horovod's
/// own.
pub(super) fn default(search: &Search) -> Option<Setting> {
    let said = search
        .trials
        .iter()
        .find(|trial| trial.phase == Phase::Default);
    let known = || {
        let is_default =
            |trial: &&Trial| DEFAULTS.contains(&(trial.setting.fusion_mb, trial.setting.cycle_ms));
        search.trials.iter().find(is_default)
    };
    // A resumed search begins with the windows: first the remembered winner's, then the default's.
    let second = || {
        let mut windows = search
            .trials
            .iter()
            .filter(|trial| trial.phase == Phase::Ab);
        let first = windows.next()?;
        windows.find(|trial| !trial.setting.is_near(&first.setting))
    };
    said.or_else(known)
        .or_else(second)
        .map(|trial| trial.setting)
}

fn contests(search: &Search, default: &Setting) -> Vec<Contest> {
    let mut contests: Vec<Vec<&Trial>> = Vec::new();
    for (index, trial) in search.trials.iter().enumerate() {
        if begins_contest(&search.trials, index) {
            contests.push(Vec::new());
        }
        if trial.phase == Phase::Ab
            && let Some(contest) = contests.last_mut()
        {
            contest.push(trial);
        }
    }
    let mut known: Vec<Contest> = Vec::new();
    for windows in &contests {
        known.extend(contest(windows, default, &known));
    }
    known
}

/// Whether the trial at `index` is the first window of a contest: a window of round 0 with an even
/// number of such windows directly before it, or the first window of a log that starts later.
pub(super) fn begins_contest(trials: &[Trial], index: usize) -> bool {
    if trials[index].phase != Phase::Ab {
        return false;
    }
    let before = trials[..index].iter().rev();
    match trials[index].number {
        0 => {
            let of_round = before.take_while(|trial| trial.phase == Phase::Ab && trial.number == 0);
            of_round.count() % 2 == 0
        }
        _ => before.take(1).all(|trial| trial.phase != Phase::Ab),
    }
}

fn contest(windows: &[&Trial], default: &Setting, before: &[Contest]) -> Option<Contest> {
    let with_default = windows.iter().any(|trial| trial.setting.is_near(default));
    // Without the default, the setting that has beaten it comes first.
    let champion = match with_default {
        true => None,
        false => {
            let first = windows.first()?.setting;
            let mut earlier = before.iter().rev();
            Some(earlier.find(|contest| contest.challenger.is_near(&first))?)
        }
    };
    let base = champion.map_or(*default, |champion| champion.challenger);
    let challenger = windows
        .iter()
        .find(|trial| !trial.setting.is_near(&base))?
        .setting;
    let of = |number: u64, of_base: bool| {
        let mut windows = windows.iter();
        windows.find(|trial| trial.number == number && trial.setting.is_near(&base) == of_base)
    };
    let last = windows.iter().map(|trial| trial.number).max()?;
    let rounds: Vec<(&Trial, &Trial)> = (0..=last.min(windows.len() as u64))
        .filter_map(|number| Some((*of(number, true)?, *of(number, false)?)))
        .collect();
    if rounds.is_empty() {
        return None;
    }
    let count = rounds.len() as f64;
    let logs: Vec<f64> = rounds
        .iter()
        .map(|(base, winner)| winner.log - base.log)
        .collect();
    let mean = (&logs).mean();
    let stated: f64 = rounds
        .iter()
        .map(|(base, winner)| base.variance + winner.variance)
        .sum();
    let half = (INTERVAL_95 * stated.sqrt() / count).max(scattered(&logs));
    let center =
        |of: &dyn Fn(&(&Trial, &Trial)) -> f64| (rounds.iter().map(of).sum::<f64>() / count).exp();
    let gain = |log: f64| -log.exp_m1();
    let by_round = logs.iter().copied().map(gain).collect();
    // The sum of two differences: that of the earlier winner, and that of the challenger relative
    // to it.
    let (ahead, ahead_half) = champion.map_or((0.0, 0.0), Contest::log_difference);
    let (mean, half) = (mean + ahead, half.hypot(ahead_half));
    Some(Contest {
        challenger,
        against: champion.map(|champion| champion.challenger),
        rounds: rounds.len() as u64,
        default_ms: center(&|round| round.0.log - ahead),
        challenger_ms: center(&|round| round.1.log),
        gain: Difference {
            mean: gain(mean),
            low: gain(mean + half),
            high: gain(mean - half),
        },
        by_round,
    })
}

impl Contest {
    /// Difference of the log step times, challenger less default, and half the width of its 95 %
    /// interval.
    fn log_difference(&self) -> (f64, f64) {
        let log = |gain: f64| (-gain).ln_1p();
        (
            log(self.gain.mean),
            (log(self.gain.low) - log(self.gain.high)) / 2.0,
        )
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::review::trial::tests::{HOROVOD, RONDE, read};

    fn gain(header: &str, rows: &str) -> Gain {
        Gain::of(&read(header, rows)[0], None, None)
    }

    #[test]
    fn rounds_by_hand() {
        // Windows without an interval of their own: 10, 20 and 30 % faster, so only the scatter of
        // the rounds is known.
        let mut rows =
            "0,0,0,1,1,128,500,default,0,10,100,,,\n0,0,0,1,1,4,600,sample,1,8,80,,,\n".to_owned();
        for (round, ms) in [90.0, 80.0, 70.0].into_iter().enumerate() {
            rows += &format!(
                "0,0,0,1,1,128,500,ab,{round},5,100,,,\n0,0,0,1,1,4,600,ab,{round},5,{ms},,,\n"
            );
        }
        let gain = gain(RONDE, &rows);
        let contest = &gain.contests[0];
        assert_eq!((contest.rounds, contest.challenger.fusion_mb), (3, 4.0));
        assert!((contest.default_ms - 100.0).abs() < 1e-9);
        let expected = 1.0 - (0.9f64 * 0.8 * 0.7).cbrt();
        assert!((contest.gain.mean - expected).abs() < 1e-9);
        // ln 0.9, ln 0.8, ln 0.7: sd 0.12577, times 4.3027 (t, 2 degrees, 97.5 %) over √3: 0.31243.
        let half = ((1.0 - contest.gain.low) / (1.0 - contest.gain.mean)).ln();
        assert!((half - 0.31243).abs() < 1e-4, "{half}");
        assert!((contest.by_round[1] - 0.2).abs() < 1e-9);
        assert_eq!(gain.contest_of(&contest.challenger), Some(contest));
    }

    #[test]
    fn a_winner_that_lost_is_followed_by_another_contest() {
        let rows = "0,0,0,1,1,128,500,default,0,10,100,,,\n0,0,0,1,1,128,500,ab,0,5,100,2,,\n0,0,0,1,1,4,600,ab,0,5,110,2,,\n\
                    0,0,0,1,1,8,600,sample,2,8,80,,,\n0,0,0,1,1,8,600,ab,0,5,80,2,,\n0,0,0,1,1,128,500,ab,0,5,100,2,,\n\
                    0,0,0,1,1,128,500,ab,1,5,100,2,,\n";
        let gain = gain(RONDE, rows);
        let challengers: Vec<f64> = gain
            .contests
            .iter()
            .map(|contest| contest.challenger.fusion_mb)
            .collect();
        assert_eq!(challengers, [4.0, 8.0]);
        assert!(gain.contests[0].gain.mean < 0.0 && gain.contests[1].rounds == 1);
        // Half-widths of 2 and 2.5 % (2 ms at 100 and at 80), combined, for one round.
        let contest = &gain.contests[1];
        let half = ((1.0 - contest.gain.low) / (1.0 - contest.gain.mean)).ln();
        assert!((half - 0.02f64.hypot(0.025)).abs() < 1e-9, "{half}");
    }

    #[test]
    fn what_beat_the_default_is_challenged_in_its_turn() {
        // 4 MB is 10 % faster than the default, 8 MB is 10 % faster than that; then 16 MB is
        // slower.
        let rows = "0,0,0,1,1,128,500,default,0,10,100,,,\n0,0,0,1,1,128,500,ab,0,5,100,2,,\n0,0,0,1,1,4,600,ab,0,5,90,1.8,,\n\
                    0,0,0,1,1,4,600,ab,0,5,90,1.8,,\n0,0,0,1,1,8,600,ab,0,5,81,1.62,,\n\
                    0,0,0,1,1,8,600,ab,0,5,81,1.62,,\n0,0,0,1,1,16,600,ab,0,5,90,1.8,,\n";
        let gain = gain(RONDE, rows);
        let [first, second, third] = gain.contests.as_slice() else {
            panic!("{gain:?}");
        };
        assert_eq!(
            (first.against, second.against),
            (None, Some(first.challenger))
        );
        assert!((second.gain.mean - 0.19).abs() < 1e-9 && (second.by_round[0] - 0.1).abs() < 1e-9);
        assert!(
            (second.default_ms - 100.0).abs() < 1e-9 && (second.challenger_ms - 81.0).abs() < 1e-9
        );
        // Four windows, each with an interval of ±2 %.
        let half = ((1.0 - second.gain.low) / (1.0 - second.gain.mean)).ln();
        assert!((half - 0.04).abs() < 1e-9, "{half}");
        assert!((third.gain.mean - 0.1).abs() < 1e-9);
        assert_eq!(gain.decisive(Some(&second.challenger)), Some(second));
        assert_eq!(gain.decisive(None), Some(third));
    }

    #[test]
    fn the_default_is_what_ronde_says_or_horovods_own() {
        let of = |header: &str, rows: &str| {
            default(&read(header, rows)[0]).map(|setting| setting.fusion_mb)
        };
        assert_eq!(of(HOROVOD, "0,0,0, 1,5,4,100\n0,0,0, 1,50,32,100\n"), None);
        assert_eq!(
            of(HOROVOD, "0,0,0, 1,5,4,100\n0,0,0, 1,5,64,100\n"),
            Some(64.0)
        );
        let windows = "0,0,0,1,1,4,600,ab,0,5,80,2,,\n0,0,0,1,1,64,500,ab,0,5,100,2,,\n";
        assert_eq!(of(RONDE, windows), Some(64.0));
        assert_eq!(gain(HOROVOD, "0,0,0, 1,5,4,100\n"), Gain::default());
    }
}
