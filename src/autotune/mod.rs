//! Tuner of a running job: receives step times and returns settings. Rank 0 only.
//!
//! The search is the crate `ronde-tuner`, which knows parameters and step times. This module
//! converts its points to [`Settings`] (`space`) and its measurements to rows of the log
//! (`logbook`, `csv`), and computes its proposals on a thread of low priority (`worker`), so that
//! no cycle waits for a Gaussian process. The search's prior comes from the observed operations of
//! the job (`trace`). Results of earlier runs and what is stored are in `results`, messages in
//! `announce`.
//!
//! A session begins once the step is known, so that parameters without effect are left out. Steps
//! of another signature are not its samples (`signatures`). If they continue for long they get a
//! search of their own, and the first one resumes when its steps return (`turn`). A log that can no
//! longer be written, or a failing optimizer, causes a warning and never harms the job.

use std::sync::Arc;

use ronde_tuner::{Action, Drift, Phase};

mod announce;
mod ask;
mod csv;
mod logbook;
pub(crate) mod memory;
#[cfg_attr(not(feature = "dash"), allow(dead_code, reason = "for the live page"))]
mod news;
mod report;
mod results;
mod search;
mod signatures;
mod space;
mod store;
mod trace;
mod tuning;
mod turn;
mod worker;

pub(crate) use news::{News, Place};
pub(crate) use report::Progress;
pub use report::{AutotuneReport, AutotuneVerdict, NotTuned};
pub use ronde_tuner::Phase as AutotunePhase;
pub(crate) use ronde_tuner::Purpose;
use trace::Tracer;
pub(crate) use tuning::Tuning;

use crate::error::{Error, SettingsError};
use crate::identity::Hosts;
use crate::knobs::Knobs;
use crate::replay::Operation;
use crate::settings::Settings;
use crate::timeline::step_meter::StepSample;
use logbook::Logbook;
use search::{Search, new_session};
use signatures::{Seen, Signatures};
use space::{Facts, Tunable};
use store::Store;

/// Bytes in the unit that Horovod's flags and log call MB.
const MIB: f64 = (1u64 << 20) as f64;
/// Steps to wait at the start until the step's signature is known.
const STEPS_TO_LEARN: u32 = 8;

/// The tuner of a job.
pub(crate) struct Autotune {
    knobs: Knobs,
    /// Facts of the job that do not depend on its steps.
    facts: Facts,
    signatures: Signatures,
    /// Search for the current steps.
    search: Search,
    /// Searches whose steps do not occur now; the one that was active last is the last.
    others: Vec<Search>,
    /// Whether the first search has begun; until then, `waited` counts the steps.
    begun: bool,
    waited: u32,
    /// Number of searches begun for new signatures, and the step of the last.
    searches: u32,
    last_search: u64,
    logbook: Logbook,
    store: Store,
    /// Steps to skip: settings that the session did not request have just come into force.
    skip: u32,
    /// Consecutive lost proposals.
    lost: u32,
    progress: Arc<Progress>,
    /// Whether no more searches begin, because the proposals fail.
    given_up: bool,
    quiet: bool,
}

impl Autotune {
    /// Makes a tuner that starts from the settings of the knobs, in a job of `ranks` ranks on
    /// `hosts`. `quiet`: the program shows the progress itself.
    ///
    /// # Errors
    /// The log cannot be written. A space without a free parameter is not an error; tuning then
    /// ends at once.
    pub(crate) fn new(
        knobs: &Knobs,
        (ranks, hosts): (usize, Hosts),
        progress: Arc<Progress>,
        quiet: bool,
    ) -> Result<Self, Error> {
        let configuration =
            |error: ronde_tuner::Error| Error::Settings(SettingsError::Invalid(Arc::new(error)));
        let facts = Facts {
            ranks,
            hosts,
            tensors: None,
            allgathers: false,
            on_gpu: false,
        };
        let mut knobs = knobs.clone();
        // The limit of wrong adoptions is a probability over the orders of visits.
        let seed = *knobs
            .autotune_seed
            .get_or_insert_with(|| rand::random::<u32>().into());
        tracing::info!("autotune: RONDE_AUTOTUNE_SEED={seed} makes the same random choices");
        let tunable = Tunable::new(&knobs, &facts).map_err(configuration)?;
        let session = new_session(&knobs, &tunable).map_err(configuration)?;
        let mut autotune = Self {
            facts,
            signatures: Signatures::default(),
            search: Search::new(None, tunable, session),
            others: Vec::new(),
            begun: false,
            waited: 0,
            searches: 0,
            last_search: 0,
            logbook: knobs
                .unless_reset(Logbook::new(knobs.autotune_log.as_deref(), knobs.resets))?,
            store: Store::new(&knobs),
            skip: 0,
            lost: 0,
            progress,
            given_up: false,
            quiet,
            knobs,
        };
        let resets = autotune.knobs.resets;
        autotune
            .logbook
            .reset(resets, &autotune.search.session.setting());
        autotune.report();
        Ok(autotune)
    }

    /// Sets the distribution of the ranks over hosts, which is known after the rendezvous; called
    /// before the first step.
    pub(crate) fn connected(&mut self, hosts: Hosts) {
        self.facts.hosts = hosts;
        let tunable = Tunable::new(&self.knobs, &self.facts);
        let opened = tunable.and_then(|tunable| {
            let session = new_session(&self.knobs, &tunable)?;
            Ok(Search::new(None, tunable, session))
        });
        match opened {
            Ok(search) => self.search = search,
            Err(error) => tracing::warn!("autotune: {error}; ignoring that"), // as in `new`
        }
        self.report();
    }

    /// Purpose of the next step.
    pub(crate) fn purpose(&self) -> Purpose {
        match self.given_up || !self.begun {
            true => Purpose::None,
            false => self.search.session.purpose(),
        }
    }

    /// Returns the settings to begin with.
    pub(crate) fn start(&self) -> Settings {
        self.search.settings()
    }

    /// Whether the job's operations are to be traced.
    pub(crate) fn wants_traces(&self) -> bool {
        self.search.verdict.is_none() && !self.given_up
    }

    /// Processes one step; returns settings to switch to.
    pub(crate) fn on_step(&mut self, sample: &StepSample, tracer: &mut Tracer) -> Option<Settings> {
        if self.given_up {
            return None;
        }
        self.facts.on_gpu |= tracer.is_on_device();
        let signature = Some(sample.signature);
        let is_other = self.search.signature != signature;
        let soon = is_other
            && (self.is_young() || self.others.iter().any(|other| other.signature == signature));
        match self.signatures.observe(sample.signature, soon) {
            Seen::Ours => {}
            Seen::Other => return None,
            Seen::Turned => return self.turn(sample, tracer),
        }
        if !self.begun {
            return self.begin(sample, tracer);
        }
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        self.search.steps += 1;
        self.search.signature = self.search.signature.or(self.signatures.settled());
        self.logbook.step(sample, self.search.tunable.on_gpu);
        if let Some(asked) = &mut self.search.asked {
            asked.step(sample.step_ms);
        }
        let contests = self.search.session.contests();
        let mut action = self.search.session.on_step(sample.step_ms);
        for recheck in self.search.session.take_rechecks() {
            self.progress.tell(|| News::Recheck(recheck));
        }
        // Not fetched before it can be used: a dropped answer never comes again.
        if matches!(action, Action::Keep)
            && let Some(proposal) = self.received(tracer)
        {
            action = self.search.session.propose(proposal);
        }
        if self.is_lost() {
            return Some(self.give_up());
        }
        self.keep_spent(contests);
        self.act(action, tracer)
    }

    /// Whether at most the first steps with the start settings have been measured.
    fn is_young(&self) -> bool {
        let session = &self.search.session;
        let is_first = self.others.is_empty() && !session.is_retuned();
        is_first && self.search.verdict.is_none() && session.progress().phase == Phase::Default
    }

    /// Begins the first search once the step is known, or when that takes too long: parameters
    /// without effect are left out, and results of earlier runs are used.
    fn begin(&mut self, sample: &StepSample, tracer: &mut Tracer) -> Option<Settings> {
        self.waited += 1;
        let signature = self.signatures.settled();
        if signature.is_none() && self.waited < STEPS_TO_LEARN {
            return None;
        }
        self.begun = true;
        let contests = self.contests();
        let before = self.search.settings();
        let facts = match signature {
            Some(_) => self.facts_of(sample, tracer),
            None => self.facts,
        };
        tracer.follow(signature);
        match self.first_session(&facts, signature) {
            Ok((tunable, session)) => self.search = Search::new(signature, tunable, session),
            Err(error) => {
                tracing::warn!("autotune: {error}; searching without a model of the step"); // as in `new`
                self.search.signature = signature;
            }
        }
        self.keep_spent(contests);
        // The user's stop holds for the whole job.
        if self.knobs.resets > 0 && memory::is_stopped() {
            self.given_up = true;
            self.progress.stay_stopped();
        }
        self.search.log_not_tuned();
        self.tell_search();
        self.tell_warnings();
        self.report();
        // The step just measured does not belong to the session.
        self.change_from(&before)
    }

    /// Ends tuning at the user's request: the settings in force stay, whether they are confirmed or
    /// not. Returns settings to switch to.
    pub(crate) fn stop(&mut self) -> Option<Settings> {
        if self.given_up {
            return None;
        }
        // As at the end of a job: later runs get the samples, but no verdict that the search did
        // not reach.
        self.keep_unfinished();
        self.search.asked = None;
        let before = self.search.settings();
        let action = self.search.session.stop();
        self.write_log();
        if let Action::Finished(verdict) = &action {
            self.announce(verdict);
        }
        // After a reset of the job the setting is in force again, without a search.
        if let Some(signature) = self.search.signature {
            self.keep(self.store.key(signature, &self.facts), false);
        }
        memory::stop();
        self.given_up = true;
        self.tell(&format!(
            "stopped on request; fusion {} stays",
            self.search.settings()
        ));
        self.report();
        self.change_from(&before)
    }

    /// Returns the settings of the active search if they differ from `before`. The next step is
    /// skipped in either case: which steps a comparison counts does not depend on its orders.
    fn change_from(&mut self, before: &Settings) -> Option<Settings> {
        let now = self.search.settings();
        self.skip = 1;
        (now != *before).then_some(now)
    }

    /// Whether the tuner does not count the next step: it is the first one of a visit.
    pub(crate) fn begins_visit(&self) -> bool {
        self.skip > 0 || self.search.session.discards_next()
    }

    /// Returns the facts of steps like `sample`.
    fn facts_of(&self, sample: &StepSample, tracer: &Tracer) -> Facts {
        Facts {
            tensors: usize::try_from(sample.tensors).ok(),
            allgathers: tracer.has(Operation::Allgather),
            ..self.facts
        }
    }

    fn act(&mut self, action: Action, tracer: &mut Tracer) -> Option<Settings> {
        if self.search.verdict.is_some() && matches!(action, Action::Keep) {
            return None; // only watched for drift
        }
        self.write_log();
        let next = match &action {
            Action::Keep => None,
            Action::Switch(point) => Some(self.search.tunable.settings(point)),
            Action::Ask => {
                self.ask(tracer);
                None
            }
            Action::Finished(verdict) => {
                self.announce(verdict);
                self.keep_active();
                Some(self.search.tunable.settings(&verdict.chosen))
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

    /// The step time of the job has changed.
    fn begin_anew(&mut self, drift: &Drift, tracer: &mut Tracer) {
        let text = drift.to_string();
        self.say(&format!("{text}; tuning again"));
        self.progress.tell(|| News::Drift(text));
        self.search.verdict = None;
        if let Some(signature) = self.search.signature {
            self.store.refute(self.store.key(signature, &self.facts));
        }
        self.tell_search();
        tracer.forget();
    }
}

impl Drop for Autotune {
    /// Training has ended: keeps the samples, and reports it if that was before the verdict.
    fn drop(&mut self) {
        if self.given_up || !self.begun {
            return;
        }
        self.keep_unfinished();
        // An elastic job goes on in the next context.
        if self.search.verdict.is_none()
            && !self.quiet
            && self.knobs.elastic_socket.is_none()
            && let Some(verdict) = self.search.session.verdict_if_stopped()
        {
            crate::logging::tell(format_args!("autotune: {}", verdict.reason));
        }
    }
}

#[cfg(test)]
mod tests;
