//! Turn to steps of another signature: resumes the search of that signature, or begins one with the
//! samples of the last as prior.

use ronde_tuner::Match;

use super::Autotune;
use super::search::{Search, new_session};
use super::store::Key;
use super::trace::Tracer;
use crate::settings::Settings;
use crate::timeline::step_meter::StepSample;

/// Reason of a search for another signature.
const REASON: &str = "the tensors of a step have changed";
/// Number of searches for new signatures without delay, and the steps between later ones: a job
/// with ever new signatures is not tuned forever.
const SEARCHES_FREE: u32 = 8;
const REST_STEPS: u64 = 500;
/// Suspended searches that are kept; beyond, the one that has waited longest is dropped.
const OTHERS_MAX: usize = 15;

impl Autotune {
    /// Steps are like `sample` now; returns settings to switch to.
    pub(super) fn turn(&mut self, sample: &StepSample, tracer: &mut Tracer) -> Option<Settings> {
        let signature = sample.signature;
        if self.is_young() {
            // The first signature was not typical of the job.
            self.signatures.begin_with(signature);
            (self.begun, self.waited, self.search.asked) = (false, 0, None);
            tracer.forget();
            return self.begin(sample, tracer);
        }
        let known = self
            .others
            .iter()
            .position(|other| other.signature == Some(signature));
        let next = match known {
            Some(index) => {
                let known = self.others.remove(index);
                tracing::info!(
                    "autotune: steps of a known signature again: applying fusion {}",
                    known.settings()
                );
                known
            }
            None => self.new_search(sample, tracer)?,
        };
        self.signatures.turn_to(signature);
        let before = self.search.settings();
        let contests = self.contests();
        self.put_in_charge(next, tracer);
        self.keep_spent(contests);
        self.tell_search();
        self.tell_warnings();
        self.report();
        self.change_from(&before)
    }

    /// Resumes `next`, and suspends the current search.
    fn put_in_charge(&mut self, mut next: Search, tracer: &mut Tracer) {
        self.logbook.interrupted();
        next.session.share_contests(self.search.session.contests());
        let traces = tracer.exchange(std::mem::take(&mut next.traces));
        tracer.follow(next.signature);
        let mut last = std::mem::replace(&mut self.search, next);
        if last.signature.is_none() {
            return; // without a signature, its steps could not be recognised
        }
        if last.verdict.is_none() {
            last.traces = traces;
        }
        self.others.push(last);
        if self.others.len() > OTHERS_MAX {
            self.others.remove(0);
        }
    }

    /// Returns a search for steps like `sample`; `None` if it is delayed, or failed.
    fn new_search(&mut self, sample: &StepSample, tracer: &Tracer) -> Option<Search> {
        let steps = self.signatures.steps();
        if self.searches >= SEARCHES_FREE && steps < self.last_search + REST_STEPS {
            return None;
        }
        (self.searches, self.last_search) = (self.searches + 1, steps);
        match self.try_new_search(sample, tracer) {
            Ok(search) => Some(search),
            Err(error) => {
                tracing::warn!("autotune: {REASON}: {error}; they are not tuned");
                None
            }
        }
    }

    fn try_new_search(
        &mut self,
        sample: &StepSample,
        tracer: &Tracer,
    ) -> Result<Search, ronde_tuner::Error> {
        let signature = Some(sample.signature);
        let (tunable, recalled) = self.open(&self.facts_of(sample, tracer), signature)?;
        let last = &self.search;
        let session = match recalled {
            Some(session) => session,
            // The threshold of GPUs is another setting, with another default.
            None if last.tunable.on_gpu != tunable.on_gpu => new_session(&self.knobs, &tunable)?,
            None if last.tunable.not_tuned == tunable.not_tuned => {
                // As after a drift: from the settings in force, with the measurements as prior
                // knowledge.
                let mut session = last.session.clone();
                session.take_measurements();
                let _ = session.retune(REASON); // its setting is put in force below
                session
            }
            None => {
                let state = last.session.state(Key::new(), "");
                new_session(&self.knobs, &tunable)?.resume(&state, Match::Sibling)
            }
        };
        self.tell(&format!("{REASON}; tuning again"));
        let search = Search::new(signature, tunable, session);
        search.log_not_tuned();
        Ok(search)
    }
}
