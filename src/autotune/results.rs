//! Results of earlier runs: sessions that continue from them, and what is stored.

use ronde_tuner::{Match, Session};

use super::search::{Search, new_session};
use super::space::{Facts, Tunable};
use super::store::Key;
use super::{Autotune, memory, store};

impl Autotune {
    pub(super) fn first_session(
        &mut self,
        facts: &Facts,
        signature: Option<u64>,
    ) -> Result<(Tunable, Session), ronde_tuner::Error> {
        let (tunable, recalled) = self.open(facts, signature)?;
        let mut session = match recalled {
            Some(session) => session,
            None => new_session(&self.knobs, &tunable)?,
        };
        session.share_contests(self.contests());
        let session = match &self.knobs.autotune_prior {
            Some(path) => session.with_history(&store::history(path, &tunable)),
            None => session,
        };
        Ok((tunable, session))
    }

    /// Comparisons that this job has begun: those of earlier runs, of steps of other signatures, and
    /// before the last reset.
    pub(super) fn contests(&self) -> u32 {
        let before = match self.knobs.resets {
            0 => self.store.contests(),
            _ => memory::contests(),
        };
        before.max(self.search.session.contests())
    }

    /// Stores the state of the active search.
    pub(super) fn keep(&mut self, key: Key, in_file: bool) {
        let session = &self.search.session;
        self.store.keep(session, key, in_file, session.contests());
    }

    /// Returns the tunable parameters for steps of `signature` with these `facts`, and a session
    /// that continues from results of earlier runs, if there are any.
    pub(super) fn open(
        &mut self,
        facts: &Facts,
        signature: Option<u64>,
    ) -> Result<(Tunable, Option<Session>), ronde_tuner::Error> {
        let tunable = Tunable::new(&self.knobs, facts)?;
        let key = signature.map(|signature| self.store.key(signature, facts));
        let recalled = key.and_then(|key| self.store.recall(&key));
        let resets = self.knobs.resets;
        let Some((mut state, matching)) = recalled else {
            return Ok((tunable, None));
        };
        let near = match (resets, matching) {
            (0, Match::Same) => "of a run of this job",
            (0, Match::Sibling) => "of a run of another job that trains this model",
            (_, Match::Same) => "before the reset",
            (_, Match::Sibling) => "before the reset, with other ranks",
        };
        tracing::info!("autotune: continues from the state {near} ({})", state.date);
        state.contests = state.contests.max(self.contests());
        let session = new_session(&self.knobs, &tunable)?;
        let session = match (resets, matching) {
            (1.., Match::Same) => session.proceed(&state),
            _ => session.resume(&state, matching),
        };
        Ok((tunable, Some(session)))
    }

    /// Stores the state of the active search; the file has that of the steps that are most.
    pub(super) fn keep_active(&mut self) {
        if let Some(signature) = self.search.signature {
            let key = self.store.key(signature, &self.facts);
            let steps = self.search.steps;
            let foremost = |other: &Search| other.verdict.is_none() || other.steps <= steps;
            let in_file = self.others.iter().all(foremost);
            self.keep(key, in_file);
        }
    }

    /// Stores the state if a comparison has begun since there were `contests`: a job that is killed
    /// has spent its error.
    pub(super) fn keep_spent(&mut self, contests: u32) {
        if self.search.session.contests() > contests {
            self.keep_active();
        }
    }

    /// Keeps the samples since the verdicts for later runs. The file receives the search with a
    /// verdict that was trained for the most steps.
    pub(super) fn keep_unfinished(&mut self) {
        if !self.begun {
            return;
        }
        // The active search has counted those of all.
        let contests = self.search.session.contests();
        let mut all: Vec<&Search> = self.others.iter().chain([&self.search]).collect();
        all.sort_by_key(|search| (search.verdict.is_some(), search.steps));
        for (index, search) in all.iter().enumerate() {
            let in_file = index + 1 == all.len();
            let is_kept = search.verdict.is_some() && (all.len() == 1 || !in_file);
            if let Some(signature) = search.signature.filter(|_| !is_kept) {
                let key = self.store.key(signature, &self.facts);
                self.store.keep(&search.session, key, in_file, contests);
            }
        }
    }
}
