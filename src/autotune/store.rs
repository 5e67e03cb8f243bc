//! What earlier runs have learnt: in the state file, and within the process from one context to the next.
//!
//! The file is a state file of the tuner's, keyed by who wrote it: the model (a hash of the step's tensors), ranks, hosts, transport and
//! version. A file that is no state file, or one of a newer version, is left as it is; one of another model is overwritten.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;

use ronde_tuner::{Match, STATE_MODEL, Session, State, StateError};

use super::space::Facts;
use crate::knobs::{Knobs, Link};
use crate::queue::lock;

/// Who wrote a state.
pub(super) type Key = BTreeMap<String, String>;

/// Jobs that a process remembers: an elastic one comes back in a few sizes.
const KEPT_MAX: usize = 8;

/// States of contexts of this process that have ended.
static KEPT: Mutex<Vec<State>> = Mutex::new(Vec::new());

/// See the module.
#[derive(Debug)]
pub(super) struct Store {
    path: Option<PathBuf>,
    link: Option<Link>,
    /// A state with a verdict is kept that a search without one must not replace.
    has_verdict: bool,
}

impl Store {
    pub(super) fn new(knobs: &Knobs) -> Self {
        Self {
            path: knobs.autotune_state.clone(),
            link: knobs.link,
            has_verdict: false,
        }
    }

    /// The key of a job that trains `model`.
    pub(super) fn key(&self, model: u64, facts: &Facts) -> Key {
        let transport = match self.link {
            None => "local".to_owned(),
            Some(Link { alpha_us, gb_per_s }) => format!("local, shaped to {alpha_us},{gb_per_s}"),
        };
        let entries = [
            (STATE_MODEL, format!("{model:016x}")),
            ("ranks", facts.ranks.to_string()),
            ("hosts", facts.hosts.to_string()),
            ("transport", transport),
            ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ];
        entries.map(|(name, value)| (name.to_owned(), value)).into()
    }

    /// What is known of the job of that key, or of one near to it.
    pub(super) fn recall(&mut self, key: &Key) -> Option<(State, Match)> {
        let found = self.read(key).or_else(|| kept(key));
        if let Some((state, matching)) = &found {
            self.has_verdict = *matching == Match::Same && state.verdict.is_some();
        }
        found
    }

    fn read(&mut self, key: &Key) -> Option<(State, Match)> {
        let path = self.path.as_ref()?;
        let name = "RONDE_AUTOTUNE_STATE";
        let state = match State::load(path) {
            Ok(state) => state,
            Err(StateError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => return None,
            Err(error) => {
                let path = path.display();
                tracing::warn!("autotune: {name}={path}: {error}; going on without it, and leaving it as it is");
                self.path = None;
                return None;
            }
        };
        let Some(matching) = state.matches(key) else {
            let model = |key: &Key| key.get(STATE_MODEL).cloned().unwrap_or_default();
            let (path, theirs, ours) = (path.display(), model(&state.key), model(key));
            tracing::warn!(
                "autotune: {name}={path} is of another model ({theirs}, this is {ours}); going on without it, and \
                 replacing it at the verdict"
            );
            return None;
        };
        Some((state, matching))
    }

    /// Keeps what `session` knows, unless it has no verdict and what is kept has.
    pub(super) fn keep(&mut self, session: &Session, key: Key) {
        let date = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let state = session.state(key, &date);
        if state.samples.is_empty() || (self.has_verdict && state.verdict.is_none()) {
            return;
        }
        self.has_verdict = state.verdict.is_some();
        if let Some(path) = &self.path
            && let Err(error) = state.save(path)
        {
            tracing::warn!("autotune: RONDE_AUTOTUNE_STATE: {error}; what was learnt is not kept");
            self.path = None;
        }
        let mut all = lock(&KEPT);
        all.retain(|kept| kept.key != state.key);
        all.push(state);
        let surplus = all.len().saturating_sub(KEPT_MAX);
        all.drain(..surplus);
    }
}

/// What this process remembers of the job of that key, or of the latest near to it.
fn kept(key: &Key) -> Option<(State, Match)> {
    let all = lock(&KEPT);
    let near = |wanted: Match| all.iter().rev().find(|state| state.matches(key) == Some(wanted));
    let found = near(Match::Same).map(|state| (state, Match::Same));
    let found = found.or_else(|| near(Match::Sibling).map(|state| (state, Match::Sibling)));
    found.map(|(state, matching)| (state.clone(), matching))
}
