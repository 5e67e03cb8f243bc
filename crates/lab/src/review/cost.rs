//! Cost of a search for the job, and the step at which the time saved equals it.

use serde::Serialize;

use super::best::Best;
use super::ending::Known;
use super::gain::Gain;
use super::setting::Setting;
use super::trial::{Search, Trial, Writer};

/// Baseline of the cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Against {
    /// The default: the settings that the job would have run with.
    Default,
    /// The tried setting with the best expected step time, if the default was not measured.
    Favourite,
}

/// Cost of a search, without the steps right after a change of settings, which no log contains.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// Steps from the first measured one to the end; without a verdict, the steps of all trials.
    pub steps: u64,
    /// Whether the number of steps assumes Horovod's default of steps per sample.
    pub steps_assumed: bool,
    /// Additional time of the trials, in steps of the baseline; negative if the search saved time.
    pub steps_lost: f64,
    /// `steps_lost` as a share of the steps.
    pub share: f64,
    /// The baseline.
    pub against: Against,
    /// Step from the start of the search at which the time saved equals the cost, if it is known.
    pub payback_step: Option<u64>,
}

impl Cost {
    pub(super) fn of(search: &Search, known: &Known, best: &Best, gain: &Gain) -> Option<Self> {
        let steps_of = |trial: &Trial| match search.writer {
            Writer::Horovod => known.steps_per_trial(),
            Writer::Ronde => trial.steps.unwrap_or(0),
        };
        let (against, base) = match &gain.default {
            Some(default) => (Against::Default, center(search, default)?),
            None => {
                let at = best.favourite.expected.value;
                (Against::Favourite, search.measure.log(at))
            }
        };
        let steps_lost = |trial: &Trial| match gain.is_default(&trial.setting) {
            true => 0.0, // scatter
            false => steps_of(trial) as f64 * (trial.log - base).exp_m1(),
        };
        let lost: f64 = search.trials.iter().map(steps_lost).sum();
        let end = search.end.as_ref().and_then(|end| end.steps);
        let steps = end.filter(|_| search.writer == Writer::Ronde);
        let steps = steps.unwrap_or_else(|| search.trials.iter().map(steps_of).sum());
        let contest = gain.contest_of(&best.choice.setting);
        let gained = contest.map(|contest| contest.gain.mean);
        let gained = gained.filter(|gained| search.end.is_some() && *gained > 0.0);
        Some(Self {
            steps,
            steps_assumed: search.writer == Writer::Horovod && known.steps_per_sample.is_none(),
            steps_lost: lost,
            share: if steps > 0 { lost / steps as f64 } else { 0.0 },
            against,
            payback_step: gained.map(|gained| steps + (lost.max(0.0) / gained).ceil() as u64),
        })
    }
}

/// Mean of the log step times of a setting's trials, weighted by their steps.
fn center(search: &Search, setting: &Setting) -> Option<f64> {
    let trials = search.trials.iter();
    let near = trials.filter(|trial| trial.setting.is_near(setting));
    let weight = |trial: &&Trial| trial.steps.unwrap_or(1).max(1) as f64;
    let sum: f64 = near.clone().map(|trial| weight(&trial) * trial.log).sum();
    let weights: f64 = near.map(|trial| weight(&trial)).sum();
    (weights > 0.0).then(|| sum / weights)
}
