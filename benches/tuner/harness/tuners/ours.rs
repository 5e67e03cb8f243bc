//! Ronde's tuner, driven as the runtime drives it: one call per step; a proposal is computed during
//! the training and is ready at the end of the next step.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ronde_job::replay::{self, Ensemble, Rules};
use ronde_tuner::{
    Action, Belief, Model, Parameter, Phase, Point, Proposal, Session, SessionConfig, Space,
};
use rustix::time::{ClockId, clock_gettime};

use super::super::attacks::settled;
use super::super::job::Job;
use super::super::outcome::STEPS;
use super::super::truth::{
    CYCLE_LEAST_MS, CYCLE_LEVELS, CYCLE_MOST_MS, FUSION_LEAST, FUSION_LEVELS, FUSION_MOST, MIB,
    Setting,
};
use super::Tuner;

/// Properties of the cycles of the harness's jobs.
const RULES: Rules = Rules::HOROVOD;

/// Steps for which a proposal is computed.
const DELAY: usize = 1;

/// Ronde's tuner, with or without a model.
#[derive(Debug)]
pub(crate) struct Ours {
    model: bool,
}

impl Ours {
    /// Uses a replay of the job as its prior.
    pub(crate) fn with_model() -> Self {
        Self { model: true }
    }

    /// Uses no prior.
    pub(crate) fn cold() -> Self {
        Self { model: false }
    }

    /// Returns the knobs that are searched.
    pub(crate) fn space() -> Result<Space, ronde_tuner::Error> {
        Space::new(vec![
            Parameter::log(
                "fusion_mb",
                FUSION_LEAST / MIB,
                FUSION_MOST / MIB,
                FUSION_LEVELS,
            )
            .with_zero()
            .rough(),
            Parameter::log("cycle_ms", CYCLE_LEAST_MS, CYCLE_MOST_MS, CYCLE_LEVELS),
            Parameter::boolean("hierarchical_allreduce"),
            // On and not tuned, unless the user asks for it.
            Parameter::boolean("cache_enabled").fixed(1.0),
            // Without effect, since there is no allgather.
            Parameter::boolean("hierarchical_allgather").fixed(0.0),
        ])
    }

    /// Returns the tuner's prior: a replay of the traces so far. `None` if there are none. No other
    /// place attaches a model.
    fn model(&self, job: &Job<'_>, seed: u64) -> Option<Arc<dyn Model>> {
        let place = job.place().filter(|_| self.model)?;
        let fit = replay::fit(job.traces(), RULES, place)?;
        Some(Arc::new(Replayed(Ensemble::new(fit, seed))))
    }

    /// Computes the proposal that the session asks for; records its cost.
    fn proposal(&self, session: &Session, job: &mut Job<'_>, seed: u64) -> Proposal {
        let ask = session.proposal_job();
        let began_ms = thread_ms();
        let Some(model) = self.model(job, seed) else {
            let proposal = ask.run();
            job.asked(thread_ms() - began_ms);
            return proposal;
        };
        let fitted_ms = thread_ms() - began_ms;
        let model = Arc::new(Timed {
            model,
            us: AtomicU64::new(0),
        });
        let proposal = ask.with_model(model.clone()).run();
        let belief_ms = model.us.load(Ordering::Relaxed) as f64 / 1e3;
        job.modelled(fitted_ms + belief_ms);
        job.asked(thread_ms() - began_ms - fitted_ms - belief_ms);
        proposal
    }
}

/// A replay's expectations for the points of the space.
#[derive(Debug)]
struct Replayed(Ensemble);

impl Model for Replayed {
    fn belief(&self, points: &[Point], reference: &Point) -> Option<Belief> {
        let settings: Vec<_> = points.iter().map(|point| setting(point).replay()).collect();
        let reference = setting(reference).replay();
        let expected = self.0.slowdowns(&settings, &reference)?;
        Some(Belief {
            mean: expected.mean,
            features: expected.features,
        })
    }
}

/// A model whose time is measured.
#[derive(Debug)]
struct Timed {
    model: Arc<dyn Model>,
    us: AtomicU64,
}

impl Model for Timed {
    fn belief(&self, points: &[Point], reference: &Point) -> Option<Belief> {
        let began_ms = thread_ms();
        let belief = self.model.belief(points, reference);
        let us = (thread_ms() - began_ms) * 1e3;
        self.us.fetch_add(us as u64, Ordering::Relaxed);
        belief
    }
}

/// Converts a point of the space to a setting.
pub(crate) fn setting(point: &Point) -> Setting {
    Setting {
        hierarchical: point.flag(2),
        cache: point.flag(3),
        allgather: point.flag(4),
        ..Setting::of(point.value(0), point.value(1))
    }
}

/// Converts a setting to a point of the space.
fn point(space: &Space, setting: &Setting) -> Result<Point, ronde_tuner::Error> {
    let flag = |flag: bool| f64::from(u8::from(flag));
    space.point(&[
        setting.fusion_mb(),
        setting.cycle_ms,
        flag(setting.hierarchical),
        flag(setting.cache),
        flag(setting.allgather),
    ])
}

/// CPU time of this thread, ms.
fn thread_ms() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 * 1e3 + now.tv_nsec as f64 / 1e6
}

impl Tuner for Ours {
    fn name(&self) -> String {
        if self.model { "ours" } else { "ours-cold" }.into()
    }

    fn wants_traces(&self) -> bool {
        self.model
    }

    fn tune(&self, job: &mut Job<'_>, seed: u64) -> Setting {
        let mut driven =
            Driven::new(self, job, seed).expect("the space and its start are the harness's own");
        while job.steps() < STEPS {
            driven.step(job);
        }
        job.ended(driven.session.progress().phase != Phase::Final);
        setting(&settled(&driven.session))
    }
}

/// Result of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Event {
    /// Nothing to report.
    Step,
    /// The search has ended.
    Finished,
    /// The session has detected that the job has changed.
    Drifted,
}

/// A session and its job.
pub(crate) struct Driven<'a> {
    ours: &'a Ours,
    session: Session,
    seed: u64,
    /// Setting in force.
    setting: Setting,
    /// Current proposal, and the steps until it is ready.
    proposal: Option<(Proposal, usize)>,
}

impl<'a> Driven<'a> {
    /// Makes a session that begins with the job's setting.
    pub(crate) fn new(
        ours: &'a Ours,
        job: &Job<'_>,
        seed: u64,
    ) -> Result<Self, ronde_tuner::Error> {
        let space = Ours::space()?;
        let setting = job.setting();
        let start = point(&space, &setting)?;
        let config = SessionConfig {
            seed,
            ..SessionConfig::default()
        };
        Ok(Self {
            session: Session::new(space, config, start)?,
            ours,
            seed,
            setting,
            proposal: None,
        })
    }

    /// Returns the setting in force.
    pub(crate) fn setting(&self) -> Setting {
        self.setting
    }

    /// Makes the job take a step, and executes the session's action.
    pub(crate) fn step(&mut self, job: &mut Job<'_>) -> Event {
        let step_us = job.step_us(&self.setting);
        let mut action = self.session.on_step(step_us / 1e3);
        if let Some((_, left)) = &mut self.proposal {
            *left -= 1;
        }
        if let Some((proposal, _)) = self.proposal.take_if(|(_, left)| *left == 0)
            && action == Action::Keep
        {
            action = self.session.propose(proposal);
        }
        if action == Action::Ask {
            let proposal = self.ours.proposal(&self.session, job, self.seed);
            self.proposal = Some((proposal, DELAY));
        }
        let event = match action {
            Action::Switch(point) => {
                self.setting = setting(&point);
                Event::Step
            }
            Action::Finished(verdict) => {
                self.setting = setting(&verdict.chosen);
                let gain_pct = (!verdict.kept_default).then_some(verdict.gain_pct);
                job.decided(&self.setting, gain_pct, verdict.reverted);
                Event::Finished
            }
            Action::Drifted(_) => {
                self.proposal = None;
                job.forget();
                Event::Drifted
            }
            Action::Keep | Action::Ask => Event::Step,
        };
        if let Some(best) = self.session.best_so_far() {
            job.incumbent(&setting(&best.setting));
        }
        event
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::truth::{Truth, surfaces};
    use crate::harness::witness::Errors;

    #[test]
    fn points_and_settings_are_the_same() {
        let space = Ours::space().unwrap();
        let there = Setting {
            hierarchical: true,
            ..Setting::of(2.0, 0.5)
        };
        for is in [Setting::DEFAULT, Setting::OLD, there] {
            assert_eq!(setting(&point(&space, &is).unwrap()), is);
        }
    }

    #[test]
    fn a_cold_session_finds_what_there_is_to_gain() {
        let surfaces = surfaces(Truth::Lab, 1.0, None).unwrap();
        let surface = &surfaces[4]; // vgg16/nv: hierarchical gains 29 %, of which most is to be found
        let mut job = Job::new(surface, 1, None);
        let chosen = Ours::cold().tune(&mut job, 7);
        assert!(
            surface.relative(&chosen) < 1.1,
            "{chosen:?} {}",
            surface.relative(&chosen)
        );
        assert!(job.verdicts()[0].step < 1000);
        assert!(!job.asked_ms().is_empty() && job.modelled_ms().is_empty());
    }

    #[test]
    fn a_replay_finds_it_sooner() {
        let surfaces = surfaces(Truth::Lab, 1.0, None).unwrap();
        let surface = &surfaces[4];
        let mut job = Job::new(surface, 1, Some(Errors::draw(0.3, 1)));
        let chosen = Ours::with_model().tune(&mut job, 7);
        assert!(
            surface.relative(&chosen) < 1.05,
            "{chosen:?} {}",
            surface.relative(&chosen)
        );
        assert_eq!(job.modelled_ms().len(), job.asked_ms().len());
        assert!(job.verdicts()[0].step < 300, "{:?}", job.verdicts());
    }
}
