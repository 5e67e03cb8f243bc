//! Review of an autotune log: its searches, their results and their reliability.
//!
//! A log of Horovod or Ronde is split into its searches. Each search is judged with the tuner's own
//! surrogate, fitted to all of its trials with their noise estimated ([`ronde_tuner::Posterior`]).
//! This module returns data; `ronde review` prints it.
//!
//! ```
//! let log = "hierarchical_allreduce,hierarchical_allgather,cache_enabled,cycle_time_ms,tensor_fusion_threshold,score
//! 0,0,0,5,4,424.1
//! 0,0,0,50,32,491.2
//! 0,0,0,25,16,480.9
//! 0,0,0,10,8,485.8
//! ";
//! let log = ronde_tuner::read_log(log)?;
//! let reviews = ronde_lab::review::review(&log, "autotune.csv", &Default::default());
//! let review = &reviews[0];
//! assert!(!review.ending.finished);
//! // 21 samples for each combination of switches, and three switches that may be tuned.
//! assert_eq!(review.ending.samples_left, Some([17, 164]));
//! // The default was never tried, so the gain is not known.
//! assert!(review.gain.default.is_none());
//! # Ok::<(), ronde_tuner::LogError>(())
//! ```

mod advice;
mod best;
mod compare;
mod cost;
mod ending;
mod gain;
mod knobs;
mod next;
mod noise;
mod setting;
mod surface;
mod trail;
mod trial;

use ronde_job::gate::Withheld;
use ronde_job::percentile::range;
use ronde_job::units::counted;
use ronde_tuner::LogContents;
use serde::Serialize;

pub use advice::{Advice, Reason};
pub use best::{Best, CANDIDATES_MOST, Candidate, Difference, Estimate};
pub use compare::{Comparison, Overlap, Preference, compare};
pub use cost::{Against, Cost};
pub use ending::{Ending, Known};
pub use gain::{Contest, Gain};
pub use knobs::{Effect, Importance, Knob};
pub use next::Next;
pub use noise::{Noise, Repeated, Scatter};
pub use setting::{Setting, Switch};
pub use surface::Surface;
pub use trial::{Measure, Phase, Trial, Writer};

use trial::{Search, searches};

/// With fewer trials the surface is determined mostly by the prior.
pub const TRIALS_FEW: usize = 8;

/// Review of one search.
#[derive(Clone, Debug, Serialize)]
pub struct Review {
    /// Name of the log file, and the number of the search if there are several.
    pub source: String,
    /// Program that wrote the log.
    pub writer: Writer,
    /// Quantity of its values.
    pub measure: Measure,
    /// Warnings that limit the confidence in the numbers.
    pub warnings: Vec<String>,
    /// End of the search.
    pub ending: Ending,
    /// Range that was tried; `None` without trials.
    pub tried: Option<Tried>,
    /// Scatter of trials with equal settings.
    pub noise: Noise,
    /// The chosen setting, and how much of its advantage was luck; `None` without trials.
    pub best: Option<Best>,
    /// Gain of the choice over the default.
    pub gain: Gain,
    /// The recommended setting, if the log supports a recommendation.
    pub advice: Option<Advice>,
    /// Reason why no setting is recommended, if there are trials.
    pub withheld: Option<Withheld>,
    /// Effects of the knobs; empty without trials.
    pub knobs: Vec<Effect>,
    /// The setting to try next; `None` without trials.
    pub next: Option<Next>,
    /// Cost of the search.
    pub cost: Option<Cost>,
    /// The decision trail in sentences.
    pub trail: Vec<String>,
    /// All trials.
    pub trials: Vec<Trial>,
    /// Switches that were tried both on and off.
    pub varied: Vec<Switch>,
    /// Whether the tensors are on GPUs: the fusion threshold is then that of GPUs.
    pub on_gpu: bool,
    /// Indices of the trials of each setting, in the order of their first trials.
    #[serde(skip)]
    pub groups: Vec<Vec<usize>>,
    /// Posterior of the step time of every setting; `None` without trials.
    #[serde(skip)]
    pub surface: Option<Surface>,
}

impl Review {
    /// Returns the last contest of the choice, or else the last contest.
    pub fn decisive_contest(&self) -> Option<&Contest> {
        let choice = self.best.as_ref().map(|best| &best.choice.setting);
        let decisive = choice.and_then(|choice| self.gain.contest_of(choice));
        decisive.or(self.gain.contests.last())
    }

    /// Returns the contest during which the job ended, if it has a complete round.
    pub fn unfinished_contest(&self) -> Option<&Contest> {
        let windows = gain::chunks(&self.trials).last()?;
        let is_contest = windows[0].phase == Phase::Ab && !self.ending.finished;
        let contest = self.gain.contests.last().filter(|_| is_contest)?;
        let has_challenger = |trial: &Trial| trial.setting.is_near(&contest.challenger);
        windows.iter().any(has_challenger).then_some(contest)
    }
}

/// Settings that were tried.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tried {
    /// Number of trials.
    pub trials: u64,
    /// Number of settings among them, with near settings counted once.
    pub settings: u64,
    /// Least and largest fusion threshold, MiB.
    pub fusion_mb: [f64; 2],
    /// Least and largest cycle time, ms.
    pub cycle_ms: [f64; 2],
    /// Number of combinations of the switches that were begun.
    pub combinations: u64,
    /// Names of the switches that were the same in all trials.
    pub never_varied: Vec<String>,
    /// Whether the default was measured.
    pub default_measured: bool,
}

/// Reviews the searches of a log, of which there is at least one; `source` is the name of the log.
pub fn review(log: &LogContents, source: &str, known: &Known) -> Vec<Review> {
    let searches = searches(log);
    let several = searches.len() > 1;
    let review = |(index, search)| match several {
        true => one(search, format!("{source}, search {}", index + 1), known),
        false => one(search, source.to_owned(), known),
    };
    searches.into_iter().enumerate().map(review).collect()
}

fn one(mut search: Search, source: String, known: &Known) -> Review {
    let groups = noise::groups(&search.trials);
    let surface = Surface::fit(&search);
    let fitted = surface.as_ref();
    let noise = Noise::of(&search, &groups, fitted);
    let best = fitted.and_then(|surface| Best::of(&search, &groups, surface));
    let judged = best.as_ref();
    let gain = Gain::of(&search, judged, fitted);
    let next = judged.zip(fitted);
    let advice = judged.map(|best| Advice::of(&search, best, &gain));
    let count = search.trials.len();
    if (1..TRIALS_FEW).contains(&count) {
        search.warnings.push(format!(
            "{} are too few for a reliable surface: expected values depend mostly on the model's \
             prior",
            counted(count as u64, "trial"),
        ));
    }
    Review {
        ending: Ending::of(&search, known),
        tried: (count > 0).then(|| tried(&search, &gain, groups.len() as u64)),
        advice: advice.clone().and_then(Result::ok),
        withheld: advice.and_then(Result::err),
        knobs: fitted.map_or_else(Vec::new, |surface| knobs::effects(&search, surface)),
        next: next.map(|(best, surface)| Next::of(best, surface, noise.sd())),
        cost: judged.and_then(|best| Cost::of(&search, known, best, &gain)),
        trail: trail::trail(&search, &gain),
        varied: search.varied(),
        on_gpu: search.on_gpu,
        source,
        writer: search.writer,
        measure: search.measure,
        warnings: search.warnings,
        trials: search.trials,
        noise,
        best,
        gain,
        groups,
        surface,
    }
}

fn tried(search: &Search, gain: &Gain, settings: u64) -> Tried {
    let trials = || search.trials.iter().map(|trial| trial.setting);
    Tried {
        trials: search.trials.len() as u64,
        settings,
        fusion_mb: range(trials().map(|setting| setting.fusion_mb)),
        cycle_ms: range(trials().map(|setting| setting.cycle_ms)),
        combinations: search.combinations().len() as u64,
        never_varied: trail::never_varied(search),
        default_measured: gain.default.is_some(),
    }
}

#[cfg(test)]
mod tests;
