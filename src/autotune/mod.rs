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

use ronde_tuner::{Action, Best, Drift, Match, Proposal, Session, SessionConfig, Verdict};

mod csv;
mod logbook;
mod report;
mod space;
mod store;
mod trace;
mod worker;

pub(crate) use report::Progress;
pub use report::{AutotuneReport, AutotuneVerdict};
pub(crate) use trace::Tracer;

use crate::error::Error;
use crate::knobs::Knobs;
use crate::negotiation::OpKind;
use crate::replay::{Place, Rules};
use crate::settings::Settings;
use crate::timeline::metrics::StepSample;
use logbook::Logbook;
use space::{Facts, Tunable, settings};
use store::Store;
use worker::{Answer, Asked, Evidence, Outcome};

/// Bytes in the unit that Horovod's flags and log call MB.
const MIB: f64 = (1u64 << 20) as f64;
/// Steps to wait at the start for the step's tensors to be known.
const STEPS_TO_LEARN: u32 = 8;
/// Steps in a row of another make, after which the job is taken to have changed for good.
const STEPS_TO_CHANGE: u32 = 8;
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
    store: Store,
    /// The model as its tensors tell it, once that is known.
    model: Option<u64>,
    shape: Shape,
    /// Steps to leave out: settings that the session did not ask for have just come into force.
    skip: u32,
    asked: Option<Asked>,
    /// Proposals lost in a row.
    lost: u32,
    /// Step time of the last measurement, ms.
    last_ms: Option<f64>,
    progress: Arc<Progress>,
    /// Of the last search, until another begins.
    verdict: Option<AutotuneVerdict>,
    /// No more searches: the proposals fail.
    given_up: bool,
    quiet: bool,
}

/// What steps consist of, as far as each step tells.
#[derive(Debug, Default)]
struct Shape {
    /// Tensors and bytes of the steps that are tuned.
    usual: Option<(u64, u64)>,
    /// Of the last step, if it was not like those, and how many such there have been in a row.
    other: Option<(u64, u64)>,
    others: u32,
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
        let session = new_session(knobs, &tunable).map_err(configuration)?;
        let autotune = Self {
            knobs: knobs.clone(),
            facts,
            tunable,
            session,
            begun: false,
            waited: 0,
            logbook: Logbook::new(knobs.autotune_log.as_deref())?,
            store: Store::new(knobs),
            model: None,
            shape: Shape::default(),
            skip: 0,
            asked: None,
            lost: 0,
            last_ms: None,
            progress,
            verdict: None,
            given_up: false,
            quiet,
        };
        autotune.report();
        Ok(autotune)
    }

    /// The settings to begin with.
    pub(crate) fn start(&self) -> Settings {
        settings(&self.session.setting())
    }

    /// Whether what the job does is to be traced.
    pub(crate) fn wants_traces(&self) -> bool {
        self.verdict.is_none() && !self.given_up
    }

    /// Takes in one step; answers with settings to switch to.
    pub(crate) fn on_step(&mut self, sample: &StepSample, tracer: &mut Tracer) -> Option<Settings> {
        if self.given_up {
            return None;
        }
        if !self.begun {
            return self.begin(tracer);
        }
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        self.model = tracer.model().or(self.model);
        if self.shape.has_changed(sample) {
            tracer.forget();
            self.verdict = None;
            self.asked = None; // its answer is of the past
            let reason = "the tensors of a step have changed";
            self.tell(&format!("{reason}; tuning anew"));
            let action = self.session.retune(reason);
            return self.act(action, tracer);
        }
        self.logbook.step(sample);
        if let Some(asked) = &mut self.asked {
            asked.step(sample.step_ms);
        }
        let mut action = self.session.on_step(sample.step_ms);
        // Not fetched before it can be used: an answer that is dropped never comes again.
        if matches!(action, Action::Keep)
            && let Some(proposal) = self.received(tracer)
        {
            action = self.session.propose(proposal);
        }
        if self.lost >= LOST_MAX {
            return Some(self.give_up());
        }
        self.act(action, tracer)
    }

    /// Begins the session once the step is known, or when that takes too long: what cannot matter is left out, and what earlier
    /// runs have learnt is made use of.
    fn begin(&mut self, tracer: &Tracer) -> Option<Settings> {
        self.waited += 1;
        let tensors = tracer.tensors();
        if tensors.is_none() && self.waited < STEPS_TO_LEARN {
            return None;
        }
        self.begun = true;
        self.model = tracer.model();
        self.facts = Facts {
            tensors,
            allgathers: tracer.has(OpKind::Allgather),
            ..self.facts
        };
        if let Err(error) = self.open_session() {
            tracing::warn!("autotune: {error}; searching without what is known of the step"); // as in `new`
        }
        tracing::info!("autotune: {}", self.tunable.dead_text());
        self.tell_warnings();
        self.report();
        // The step just measured is not the session's.
        let begin = settings(&self.session.setting());
        let is_start = begin.equals(&settings(&self.tunable.start));
        self.skip = u32::from(!is_start);
        (!is_start).then_some(begin)
    }

    fn open_session(&mut self) -> Result<(), ronde_tuner::Error> {
        let tunable = Tunable::new(&self.knobs, &self.facts)?;
        let key = self.model.map(|model| self.store.key(model, &self.facts));
        let recalled = key.and_then(|key| self.store.recall(&key));
        let mut session = match recalled {
            None => new_session(&self.knobs, &tunable)?,
            Some((state, matching)) => {
                let near = match matching {
                    Match::Same => "of this job",
                    Match::Sibling => "of another job that trains this model",
                };
                tracing::info!("autotune: goes on from what a run {near} learnt ({})", state.date);
                let (space, start) = (tunable.space.clone(), tunable.start);
                Session::resume(space, config(&self.knobs), start, &state, matching)?
            }
        };
        if let Some(path) = &self.knobs.autotune_prior {
            let scores = store::history(path, &tunable);
            session = session.with_history(&scores);
        }
        self.session = session;
        self.tunable = tunable;
        Ok(())
    }

    fn act(&mut self, action: Action, tracer: &mut Tracer) -> Option<Settings> {
        if self.verdict.is_some() && matches!(action, Action::Keep) {
            return None; // watching, no more
        }
        self.write_log();
        let next = match &action {
            Action::Keep => None,
            Action::Switch(point) => Some(settings(point)),
            Action::Ask => {
                self.ask(tracer);
                None
            }
            Action::Finished(verdict) => {
                self.finish(verdict);
                Some(settings(&verdict.chosen))
            }
            Action::Drifted(drift) => {
                self.begin_anew(drift, tracer);
                None
            }
        };
        self.tell_warnings();
        self.report();
        next
    }

    /// The job is not what it was.
    fn begin_anew(&mut self, drift: &Drift, tracer: &mut Tracer) {
        let Drift {
            step,
            before_ms,
            after_ms,
        } = drift;
        self.tell(&format!(
            "step time went from {before_ms:.2} to {after_ms:.2} ms (step {step}); tuning anew"
        ));
        self.verdict = None;
        tracer.forget();
    }

    fn tell(&self, text: &str) {
        tracing::info!("autotune: {text}");
        if !self.quiet {
            eprintln!("ronde: autotune: {text}");
        }
    }

    fn tell_warnings(&mut self) {
        for warning in self.session.take_warnings() {
            tracing::warn!("autotune: {warning}");
        }
    }

    /// Has the next proposal computed.
    fn ask(&mut self, tracer: &Tracer) {
        let evidence = Evidence {
            seen: tracer.seen(),
            reference: settings(&self.session.reference()),
            rules: Rules {
                early: self.knobs.early_cycle,
                ..Rules::RONDE
            },
            place: Place::new(
                self.facts.ranks as u32,
                self.facts.ranks.div_ceil(self.facts.hosts) as u32,
            ),
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
        tracing::warn!(
            "autotune: {LOST_MAX} proposals were lost in a row; given up, with the settings that the search began with"
        );
        self.given_up = true;
        self.write_log();
        settings(&self.session.reference())
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
        self.logbook.finished(verdict);
        self.keep();
        let verdict = self.verdict_of(verdict);
        if !self.quiet {
            eprintln!("ronde: autotune: {verdict}");
        }
        self.verdict = Some(verdict);
    }

    /// Keeps what has been learnt for later runs.
    fn keep(&mut self) {
        if let Some(model) = self.model {
            let key = self.store.key(model, &self.facts);
            self.store.keep(&self.session, key);
        }
    }

    fn report(&self) {
        let progress = self.session.progress();
        let best = |best: Best| (settings(&best.setting), best.step_ms);
        self.progress.set_autotune(AutotuneReport {
            phase: progress.phase,
            sample: progress.sample,
            settings: settings(&progress.setting),
            step_ms: progress.step_ms,
            best: progress.best.map(best),
            steps_left: progress.steps_left,
            verdict: self.verdict.clone(),
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
            budget_steps: verdict.budget_steps,
            budget_kept: verdict.budget_kept,
            retuned: verdict.retuned.clone(),
            payback_step: verdict.payback_step,
            reason: verdict.reason.clone(),
            not_tuned: self.tunable.dead_text(),
        }
    }
}

impl Drop for Autotune {
    /// Training has ended: says so if that was before the verdict, and keeps what has been learnt.
    fn drop(&mut self) {
        if self.verdict.is_some() || self.given_up || !self.begun {
            return;
        }
        self.keep();
        if !self.quiet
            && let Some(verdict) = self.session.verdict_if_stopped()
        {
            eprintln!("ronde: autotune: {}", verdict.reason);
        }
    }
}

impl Shape {
    /// Whether steps have been of another make for so long that they are no exception.
    fn has_changed(&mut self, sample: &StepSample) -> bool {
        let found = (sample.tensors, sample.bytes);
        let usual = *self.usual.get_or_insert(found);
        if found == usual {
            (self.other, self.others) = (None, 0);
            return false;
        }
        self.others = if self.other == Some(found) {
            self.others + 1
        } else {
            1
        };
        self.other = Some(found);
        if self.others < STEPS_TO_CHANGE {
            return false;
        }
        *self = Self {
            usual: Some(found),
            ..Self::default()
        };
        true
    }
}

fn new_session(knobs: &Knobs, tunable: &Tunable) -> Result<Session, ronde_tuner::Error> {
    Session::new(tunable.space.clone(), config(knobs), tunable.start)
}

fn config(knobs: &Knobs) -> SessionConfig {
    let config = SessionConfig::default();
    let config = match knobs.autotune_steps {
        Some(steps) => config.with_horizon(steps),
        None => config,
    };
    SessionConfig {
        budget_steps: knobs.autotune_budget.unwrap_or(config.budget_steps),
        seed: knobs.autotune_seed,
        warmup_samples: knobs.autotune_warmup_samples,
        steps_per_sample: knobs.autotune_steps_per_sample.unwrap_or(config.steps_per_sample),
        adaptive: knobs.autotune_steps_per_sample.is_none(),
        max_samples: knobs.autotune_max_samples,
        fixed_noise: knobs.autotune_noise,
        ..config
    }
}
