//! Content of a page that shows a log: events from the reviews of the log's searches.

use std::collections::HashMap;

use ronde_dash::{
    Event, Job, Log, LogKind, Measure, Measured, Place, SettingsChange, Step, Surface, Tuner,
    Verdict, Window, now_unix_ms,
};
use ronde_job::settings::Settings;
use ronde_lab::review::{self, Against, Phase, Review, Setting, Switch, Trial, Writer};
use ronde_tuner::LogContents;

use crate::review::report;

/// Bytes of one MiB.
const MIB: f64 = 1_048_576.0;

/// Levels at which the expected values are shown: fusion threshold, MiB, and cycle time, ms.
const FUSION_MB: [f64; 14] = [
    0.0, 0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0,
];
const CYCLE_MS: [f64; 10] = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0];

/// Content of a page that shows a log.
pub(super) struct Shown {
    job: Job,
    steps: Vec<Step>,
    changes: Vec<SettingsChange>,
    log: Vec<Log>,
    verdicts: Vec<Verdict>,
    tuner: Option<Tuner>,
    surface: Option<Surface>,
}

/// Whether `new` is a later state of the same log as `old`.
pub(super) fn is_continued(old: &Shown, new: &Shown) -> bool {
    let of_old = new.steps.get(..old.steps.len());
    old.job == new.job && of_old.is_some_and(|steps| steps == old.steps)
}

impl Shown {
    /// Whether the log has no trials.
    pub(super) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    pub(super) fn new(name: &str, logs: usize, contents: &LogContents, reviews: &[Review]) -> Self {
        let mut shown = Self {
            job: job(name, logs, reviews),
            steps: Vec::new(),
            changes: Vec::new(),
            log: Vec::new(),
            verdicts: Vec::new(),
            tuner: None,
            surface: None,
        };
        let shares: HashMap<u64, f64> = contents
            .rows
            .iter()
            .filter_map(|row| Some((row.line, row.negotiate_share?)))
            .collect();
        for (index, review) in reviews.iter().enumerate() {
            let first = shown.steps.len();
            for trial in &review.trials {
                shown.trial(review, trial, shares.get(&trial.line).copied());
            }
            let begin = shown.steps.get(first).map(|step| step.step);
            if index > 0 {
                let text = "The search begins again, because the job has changed.";
                shown.say(begin, LogKind::Drift, text);
            }
            for warning in &review.warnings {
                shown.say(None, LogKind::Warning, warning);
            }
            // The last sentence of an unfinished search changes with every trial.
            let is_open = !review.ending.finished && index + 1 == reviews.len();
            let sentences = review.trail.len() - usize::from(is_open && !review.trail.is_empty());
            for sentence in &review.trail[..sentences] {
                shown.say(None, LogKind::Tuner, sentence);
            }
            let end = shown.end();
            shown.verdicts.extend(verdict(review, end));
        }
        if let Some(review) = reviews.last() {
            shown.tuner = Some(tuner(review));
            shown.surface = surface(review);
        }
        shown
    }

    /// Number of the step after the last one.
    fn end(&self) -> u64 {
        self.steps.last().map_or(0, |last| last.step + last.steps)
    }

    fn say(&mut self, step: Option<u64>, kind: LogKind, text: &str) {
        self.log.push(Log {
            step,
            kind,
            text: text.to_owned(),
            at_unix_ms: None,
        });
    }

    fn trial(&mut self, review: &Review, trial: &Trial, negotiate_share: Option<f64>) {
        let is_default = || {
            let default = review.gain.default;
            default.is_some_and(|default| default.is_near(&trial.setting))
        };
        let settings = settings(&trial.setting);
        let step = self.end();
        if self
            .steps
            .last()
            .is_none_or(|last| last.settings != settings)
        {
            let why = match trial.phase {
                Phase::Default => "the default is measured".to_owned(),
                Phase::Sample => format!("sample {}", trial.number),
                Phase::Ab => format!("comparison, round {}", trial.number + 1),
            };
            self.changes.push(SettingsChange {
                step,
                settings,
                why,
            });
        }
        self.steps.push(Step {
            step,
            steps: match review.writer {
                Writer::Ronde => trial.steps.unwrap_or(1).max(1),
                Writer::Horovod => 1, // a sample; its number of steps is not in the log
            },
            value: trial.value,
            settings,
            window: match trial.phase {
                Phase::Default => Window::Default,
                Phase::Sample => Window::Search,
                Phase::Ab if is_default() => Window::AbDefault,
                Phase::Ab => Window::AbCandidate,
            },
            exposed_ms: None,
            negotiation_ms: match review.measure {
                review::Measure::StepMs => negotiate_share.map(|share| share * trial.value),
                review::Measure::Score => None,
            },
            messages: None,
            bytes: None,
            fill: None,
        });
    }

    /// All events, for a page that shows another log.
    pub(super) fn all(&self) -> Vec<Event> {
        let job = Event::Job(self.job.clone());
        std::iter::once(job)
            .chain(self.from([0; 3], &[], None))
            .collect()
    }

    /// The new events, for a page that shows an earlier state of this log.
    pub(super) fn since(&self, old: &Self) -> Vec<Event> {
        let known = [old.steps.len(), old.changes.len(), old.verdicts.len()];
        self.from(known, &old.log, Some(now_unix_ms()))
    }

    /// The events that a page lacks. `known`: numbers of steps, changes and verdicts that it has.
    fn from(&self, known: [usize; 3], log: &[Log], at_unix_ms: Option<u64>) -> Vec<Event> {
        let [steps, changes, verdicts] = known;
        let mut events: Vec<Event> = Vec::new();
        events.extend(self.steps.iter().skip(steps).copied().map(Event::Step));
        let new = self.changes.iter().skip(changes).cloned();
        events.extend(new.map(Event::Settings));
        let new = self.log.iter().filter(|entry| !is_known(entry, log));
        let new = new.cloned();
        events.extend(new.map(|entry| {
            Event::Log(Log {
                at_unix_ms,
                ..entry
            })
        }));
        let new = self.verdicts.iter().skip(verdicts).cloned();
        events.extend(new.map(Event::Verdict));
        events.extend(self.tuner.clone().map(Event::Tuner));
        events.extend(self.surface.clone().map(Event::Surface));
        events
    }
}

/// Whether the page has this entry. A warning counts something, and would come again with each
/// trial.
fn is_known(entry: &Log, known: &[Log]) -> bool {
    let words = |entry: &Log| entry.text.replace(|c: char| c.is_ascii_digit(), "");
    known.iter().any(|other| match entry.kind {
        LogKind::Warning => other.kind == LogKind::Warning && words(other) == words(entry),
        _ => other == entry,
    })
}

fn job(name: &str, logs: usize, reviews: &[Review]) -> Job {
    let first = reviews.first();
    let writer = match first.map(|review| review.writer) {
        Some(Writer::Ronde) => "autotune log of Ronde",
        _ => "autotune log of Horovod",
    };
    Job {
        name: match logs {
            0 | 1 => name.to_owned(),
            _ => format!("{name}, log {logs}"),
        },
        backend: writer.to_owned(),
        measure: match first.map(|review| review.measure) {
            Some(review::Measure::StepMs) => Measure::StepMs,
            _ => Measure::Score,
        },
        is_log: true,
        ..Job::default()
    }
}

fn settings(setting: &Setting) -> Settings {
    let default = Settings::default();
    let switch = |switch: Switch, default: bool| setting.switch(switch).unwrap_or(default);
    Settings {
        fusion_threshold_bytes: (setting.fusion_mb * MIB).round() as u64,
        cycle_time_ns: (setting.cycle_ms * 1e6).round() as u64,
        cache: switch(Switch::CacheEnabled, default.cache),
        hierarchical_allreduce: switch(Switch::HierarchicalAllreduce, false),
        hierarchical_allgather: switch(Switch::HierarchicalAllgather, false),
        ..default
    }
}

fn place(setting: &Setting) -> Place {
    Place {
        fusion_mb: setting.fusion_mb,
        cycle_ms: setting.cycle_ms,
    }
}

/// The recommendation, once the search has ended.
fn verdict(review: &Review, step: u64) -> Option<Verdict> {
    let best = review.best.as_ref().filter(|_| review.ending.finished)?;
    let contest = review.decisive_contest();
    let chosen = best.choice.setting;
    let default = review.gain.default;
    let kept_default = default.is_some_and(|default| default.is_near(&chosen));
    let of_choice = contest.filter(|contest| contest.challenger.is_near(&chosen));
    Some(Verdict {
        step,
        kept_default,
        reverted: false,
        settings: settings(&chosen),
        default_value: contest.map(|contest| contest.default_ms),
        chosen_value: of_choice.map(|contest| contest.challenger_ms),
        gain_pct: of_choice.map(|contest| [contest.gain.low, contest.gain.high].map(|g| 100.0 * g)),
        steps_active: review.cost.map(|cost| cost.steps),
        steps_lost: steps_lost(review),
        budget_steps: None,
        payback_step: review.cost.and_then(|cost| cost.payback_step),
        text: report::answer(review).join(" "),
    })
}

/// Cost of the search in steps at the default settings, if those were measured.
fn steps_lost(review: &Review) -> Option<f64> {
    let cost = review
        .cost
        .filter(|cost| cost.against == Against::Default)?;
    Some(cost.steps_lost)
}

fn tuner(review: &Review) -> Tuner {
    let phase = match review.trials.last().map(|trial| trial.phase) {
        _ if review.ending.finished => "finished",
        None => "not begun",
        Some(Phase::Default) => "default",
        Some(Phase::Sample) => "search",
        Some(Phase::Ab) => "comparison",
    };
    Tuner {
        phase: phase.to_owned(),
        detail: report::summary(review),
        steps_left: None,
        steps_lost: steps_lost(review),
        is_over: review.ending.finished,
    }
}

/// Expected values of the settings with the switches of the choice.
fn surface(review: &Review) -> Option<Surface> {
    let best = review.best.as_ref()?;
    let posterior = review.surface.as_ref()?;
    let switches = best.choice.setting.switches;
    // `Setting::grid` varies the cycle time fastest, the page the threshold.
    let by_fusion = posterior.at(&Setting::grid(&FUSION_MB, &CYCLE_MS, switches));
    let mut predicted = Vec::with_capacity(by_fusion.len());
    for cycle in 0..CYCLE_MS.len() {
        let of_cycle = by_fusion.iter().skip(cycle).step_by(CYCLE_MS.len());
        predicted.extend(of_cycle.map(|expected| review.measure.value(expected.mean)));
    }
    let tried = review.groups.iter().filter_map(|group| {
        let trials = || group.iter().map(|&index| &review.trials[index]);
        let first = trials().next()?;
        let mean = trials().map(|trial| trial.log).sum::<f64>() / group.len() as f64;
        let same = first.setting.switches == switches;
        same.then(|| Measured {
            place: place(&first.setting),
            value: review.measure.value(mean),
            ci95: first.ci95.filter(|_| group.len() == 1),
            measurements: group.len() as u64,
        })
    });
    let next = review.next.as_ref().filter(|_| !review.ending.finished);
    Some(Surface {
        fusion_mb: FUSION_MB.to_vec(),
        cycle_ms: CYCLE_MS.to_vec(),
        predicted,
        default: review.gain.default.as_ref().map(place),
        incumbent: Some(place(&best.choice.setting)),
        tried: tried.collect(),
        next: next.and_then(|next| next.setting.as_ref()).map(place),
    })
}
