//! Tuning a running job: step times in, settings out. Rank 0 only.
//!
//! The search itself is the crate `ronde-tuner`, which knows parameters and step times; here its points become
//! [`Settings`] (`space`), its measurements rows of the log (`logbook`, `csv`), and its proposals are computed on a thread
//! of low priority (`worker`), so that no cycle waits for a Gaussian process. What the search believes beforehand comes
//! from what the job itself is seen to do (`trace`).
//!
//! A session begins once the step is known, so that what cannot matter in it is left out. A log that can no longer be
//! written, or a failing optimizer, is a warning and never harms the job.

use std::sync::Arc;

use ronde_tuner::{Action, Best, Proposal, Session, SessionConfig, Verdict};

mod csv;
mod logbook;
mod report;
mod space;
mod trace;
mod worker;

pub(crate) use report::Progress;
pub(crate) use trace::Tracer;
pub use report::{AutotuneReport, AutotuneVerdict};

use crate::error::Error;
use crate::knobs::Knobs;
use crate::negotiation::OpKind;
use crate::replay::{Place, Rules};
use crate::settings::Settings;
use crate::timeline::metrics::StepSample;
use logbook::Logbook;
use space::{Facts, Tunable, settings};
use worker::{Answer, Asked, Evidence, Outcome};

/// Bytes in the unit that Horovod's flags and log call MB.
const MIB: f64 = (1u64 << 20) as f64;
/// Steps to wait at the start for the step's tensors to be known.
const STEPS_TO_LEARN: u32 = 8;
/// Proposals in a row that may be lost before the search is given up.
const LOST_MAX: u32 = 3;

/// A tuning session and what belongs to it.
pub(crate) struct Autotune {
    knobs: Knobs,
    facts: Facts,
    tunable: Tunable,
    session: Session,
    /// The session has begun; before, this many steps have been waited.
    begun: bool,
    waited: u32,
    logbook: Logbook,
    asked: Option<Asked>,
    /// Proposals lost in a row.
    lost: u32,
    /// Step time of the last measurement, ms.
    last_ms: Option<f64>,
    progress: Arc<Progress>,
    /// There is a verdict.
    finished: bool,
    quiet: bool,
}

impl Autotune {
    /// A session that starts from what the knobs say, in a job of `ranks` ranks on `hosts` hosts. `quiet`: the program shows
    /// the progress itself.
    ///
    /// # Errors
    /// A log that cannot be written; a space without a free parameter is not an error, but ends at once.
    pub(crate) fn new(
        knobs: &Knobs,
        (ranks, hosts): (usize, usize),
        progress: Arc<Progress>,
        quiet: bool,
    ) -> Result<Self, Error> {
        let configuration = |error: ronde_tuner::Error| Error::Configuration(Arc::new(error));
        let facts = Facts {
            ranks,
            hosts,
            tensors: None,
            allgathers: false,
        };
        let tunable = Tunable::new(knobs, &facts).map_err(configuration)?;
        let session = session(knobs, &tunable).map_err(configuration)?;
        let autotune = Self {
            knobs: knobs.clone(),
            facts,
            tunable,
            session,
            begun: false,
            waited: 0,
            logbook: Logbook::new(knobs.autotune_log.as_deref())?,
            asked: None,
            lost: 0,
            last_ms: None,
            progress,
            finished: false,
            quiet,
        };
        autotune.report(None);
        Ok(autotune)
    }

    /// The settings to begin with.
    pub(crate) fn start(&self) -> Settings {
        settings(&self.session.setting())
    }

    /// Whether what the job does is to be traced.
    pub(crate) fn wants_traces(&self) -> bool {
        !self.finished
    }

    /// Takes in one step; answers with settings to switch to.
    pub(crate) fn on_step(&mut self, sample: &StepSample, tracer: &mut Tracer) -> Option<Settings> {
        if self.finished || !self.has_begun(tracer) {
            return None;
        }
        self.logbook.step(sample);
        if let Some(asked) = &mut self.asked {
            asked.step(sample.step_ms);
        }
        let action = match (self.session.on_step(sample.step_ms), self.received(tracer)) {
            (Action::Keep, Some(proposal)) => self.session.propose(proposal),
            (action, _) => action,
        };
        if self.lost >= LOST_MAX {
            return Some(self.give_up());
        }
        self.act(action, tracer)
    }

    /// Whether the session has begun: it does so once the step is known, or when that takes too long.
    fn has_begun(&mut self, tracer: &Tracer) -> bool {
        if self.begun {
            return true;
        }
        let tensors = tracer.tensors();
        self.waited += 1;
        if tensors.is_none() && self.waited < STEPS_TO_LEARN {
            return false;
        }
        self.begun = true;
        let allgathers = tracer.has(OpKind::Allgather);
        self.facts = Facts {
            tensors,
            allgathers,
            ..self.facts
        };
        let tunable = Tunable::new(&self.knobs, &self.facts);
        if let Ok(tunable) = tunable
            && let Ok(session) = session(&self.knobs, &tunable)
        {
            (self.tunable, self.session) = (tunable, session);
        }
        tracing::info!("autotune: {}", self.tunable.dead_text());
        true
    }

    fn act(&mut self, action: Action, tracer: &Tracer) -> Option<Settings> {
        self.write_log();
        let next = match &action {
            Action::Keep => None,
            Action::Switch(point) => Some(settings(point)),
            Action::Ask => {
                self.ask(tracer);
                None
            }
            Action::Finished(verdict) => Some(settings(&verdict.chosen)),
        };
        for warning in self.session.take_warnings() {
            tracing::warn!("autotune: {warning}");
        }
        let verdict = if let Action::Finished(verdict) = action {
            Some(*verdict)
        } else {
            None
        };
        if let Some(verdict) = &verdict {
            self.finish(verdict);
        }
        self.report(verdict);
        next
    }

    /// Has the next proposal computed.
    fn ask(&mut self, tracer: &Tracer) {
        let evidence = Evidence {
            seen: tracer.seen(),
            reference: settings(&self.tunable.start),
            rules: Rules {
                early: self.knobs.early_cycle,
                ..Rules::RONDE
            },
            place: Place::new(self.facts.ranks as u32, self.facts.ranks.div_ceil(self.facts.hosts) as u32),
            seed: self.knobs.autotune_seed,
        };
        // What has been lost once may have been lost by its evidence.
        let evidence = (self.lost == 0).then_some(evidence);
        match Asked::new(self.session.proposal_job(), evidence, self.last_ms) {
            Ok(asked) => self.asked = Some(asked),
            Err(error) => {
                tracing::warn!("autotune: cannot start its thread: {error}");
                self.lost = LOST_MAX;
            }
        }
    }

    fn received(&mut self, tracer: &Tracer) -> Option<Proposal> {
        let asked = self.asked.as_ref()?;
        match asked.outcome() {
            Outcome::Pending => None,
            Outcome::Done(answer) => {
                let Answer { proposal, spent } = *answer;
                tracing::info!("autotune: {}", spent.text(asked.slowdown_pct()));
                self.asked = None;
                self.lost = 0;
                Some(proposal)
            }
            Outcome::Lost => {
                self.asked = None;
                self.lost += 1;
                if self.lost < LOST_MAX {
                    tracing::warn!("autotune: the proposal was lost; asking again");
                    self.ask(tracer);
                }
                None
            }
        }
    }

    /// No proposal can be computed here: the settings of the start stay.
    fn give_up(&mut self) -> Settings {
        tracing::warn!("autotune: {LOST_MAX} proposals were lost in a row; given up, the settings of the start stay");
        self.finished = true;
        self.write_log();
        settings(&self.tunable.start)
    }

    fn write_log(&mut self) {
        let measurements = self.session.take_measurements();
        if let Some(last) = measurements.last() {
            self.last_ms = Some(last.step_ms);
        }
        let best = self.session.best_so_far();
        self.logbook.measured(&measurements, best.as_ref());
    }

    fn finish(&mut self, verdict: &Verdict) {
        self.finished = true;
        self.logbook.finished(verdict);
        if !self.quiet {
            eprintln!("ronde: autotune: {}", self.verdict_of(verdict));
        }
    }

    fn report(&self, verdict: Option<Verdict>) {
        let progress = self.session.progress();
        let best = |best: Best| (settings(&best.setting), best.step_ms);
        self.progress.set_autotune(AutotuneReport {
            phase: progress.phase,
            sample: progress.sample,
            settings: settings(&progress.setting),
            step_ms: progress.step_ms,
            best: progress.best.map(best),
            steps_left: progress.steps_left,
            verdict: verdict.as_ref().map(|verdict| self.verdict_of(verdict)),
        });
    }

    fn verdict_of(&self, verdict: &Verdict) -> AutotuneVerdict {
        AutotuneVerdict {
            kept_default: verdict.kept_default,
            settings: settings(&verdict.chosen),
            default_step_ms: verdict.default_step_ms,
            chosen_step_ms: verdict.chosen_step_ms,
            gain_pct: verdict.gain_pct,
            steps_active: verdict.steps_active,
            steps_lost: verdict.steps_lost,
            payback_step: verdict.payback_step,
            reason: verdict.reason.clone(),
            not_tuned: self.tunable.dead_text(),
        }
    }
}

impl Drop for Autotune {
    /// Training has ended: says so if that was before the verdict.
    fn drop(&mut self) {
        if !self.finished
            && !self.quiet
            && let Some(verdict) = self.session.verdict_if_stopped()
        {
            eprintln!("ronde: autotune: {}", verdict.reason);
        }
    }
}

fn session(knobs: &Knobs, tunable: &Tunable) -> Result<Session, ronde_tuner::Error> {
    Session::new(tunable.space.clone(), config(knobs), tunable.start)
}

fn config(knobs: &Knobs) -> SessionConfig {
    let config = SessionConfig::default();
    SessionConfig {
        seed: knobs.autotune_seed,
        warmup_samples: knobs.autotune_warmup_samples,
        steps_per_sample: knobs.autotune_steps_per_sample.unwrap_or(config.steps_per_sample),
        early_abort: knobs.autotune_steps_per_sample.is_none(),
        max_samples: knobs.autotune_max_samples,
        fixed_noise: knobs.autotune_noise,
        ..config
    }
}
