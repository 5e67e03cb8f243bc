//! Results of this process's tuners, for later contexts of the process and for other ranks.
//!
//! At a reset of an elastic job another process may become rank 0. Rank 0 therefore hands the
//! memory to the other ranks, as text ([`told`]), and they [`learn`] it.

use std::sync::Mutex;

use ronde_tuner::{Match, State};
use serde::{Deserialize, Serialize};

use super::store::{Key, is_of_job};
use crate::sync::lock;

/// Version of the text.
const VERSION: u32 = 2;
/// States kept: an elastic job has a few sizes, and steps of a few signatures.
const STATES_MAX: usize = 16;
/// Largest text: states have some kilobytes each.
const TEXT_BYTES_MAX: usize = 4 << 20;

static MEMORY: Mutex<Memory> = Mutex::new(Memory {
    ronde_tuner_memory: VERSION,
    revision: 0,
    contests: 0,
    stopped: false,
    states: Vec::new(),
});

#[derive(Debug, Serialize, Deserialize)]
struct Memory {
    ronde_tuner_memory: u32,
    /// Number of changes so far; of two memories of a job, the one with more is the later one.
    revision: u64,
    /// Comparisons that the job's tuners have begun: they share one error.
    contests: u32,
    /// Whether the user has stopped tuning.
    stopped: bool,
    states: Vec<State>,
}

/// Adds the state of a search.
pub(super) fn remember(state: State) {
    let mut memory = lock(&MEMORY);
    if memory.states.contains(&state) {
        return;
    }
    memory.revision += 1;
    memory.contests = memory.contests.max(state.contests);
    memory.states.retain(|kept| kept.key != state.key);
    memory.states.push(state);
    let surplus = memory.states.len().saturating_sub(STATES_MAX);
    memory.states.drain(..surplus);
}

/// Counts the comparisons of a search whose state is not kept.
pub(super) fn count_contests(contests: u32) {
    let mut memory = lock(&MEMORY);
    if contests > memory.contests {
        memory.revision += 1;
        memory.contests = contests;
    }
}

/// Takes note that the user has stopped tuning.
pub(super) fn stop() {
    let mut memory = lock(&MEMORY);
    memory.revision += 1;
    memory.stopped = true;
}

/// Takes a stop back, so that other tests of this process can tune.
#[cfg(test)]
pub(super) fn allow() {
    lock(&MEMORY).stopped = false;
}

/// Whether the user has stopped tuning.
pub(super) fn is_stopped() -> bool {
    lock(&MEMORY).stopped
}

/// Comparisons that the tuners of this process have begun.
pub(super) fn contests() -> u32 {
    lock(&MEMORY).contests
}

/// Returns the state of the job with that key, or the latest of a similar job.
pub(super) fn recall(key: &Key) -> Option<(State, Match)> {
    let memory = lock(&MEMORY);
    let near = |wanted: Match| {
        let mut latest = memory.states.iter().rev();
        let found = latest.find(|state| state.matches(key) == Some(wanted));
        found.map(|state| (state.clone(), wanted))
    };
    // Steps of all signatures share one error.
    let of_job = memory
        .states
        .iter()
        .filter(|state| is_of_job(&state.key, key));
    let contests = of_job.map(|state| state.contests).max().unwrap_or(0);
    let same = near(Match::Same).map(|(state, wanted)| (State { contests, ..state }, wanted));
    same.or_else(|| near(Match::Sibling))
}

/// Number of changes of this process's memory so far.
pub fn revision() -> u64 {
    lock(&MEMORY).revision
}

/// Returns the memory as text for [`learn`], if it has changed since `revision`.
pub fn told(revision: u64) -> Option<String> {
    let memory = lock(&MEMORY);
    let is_new = memory.revision > revision;
    is_new
        .then(|| serde_json::to_string(&*memory).ok())
        .flatten()
}

/// Replaces this process's memory by that of another rank, unless its own is later.
///
/// # Errors
/// The reason for which `text` cannot be used; the memory stays as it was.
pub fn learn(text: &str) -> Result<(), String> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(format!("{} bytes, more than {TEXT_BYTES_MAX}", text.len()));
    }
    let theirs: Memory = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if theirs.ronde_tuner_memory != VERSION || theirs.states.len() > STATES_MAX {
        let (version, count) = (theirs.ronde_tuner_memory, theirs.states.len());
        return Err(format!("version {version} with {count} states"));
    }
    for state in &theirs.states {
        State::from_json(&state.to_json()).map_err(|error| error.to_string())?;
    }
    let mut memory = lock(&MEMORY);
    if theirs.revision > memory.revision {
        *memory = theirs;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_another_rank_is_checked() {
        let state = |step_ms: f64| {
            format!(
                r#"{{"ronde_tuner_state":2,"date":"","key":{{"model":"of memory::tests"}},"start":{{}},
                "samples":[{{"setting":{{}},"step_ms":{step_ms},"spread":0.1,"steps":5}}],"verdict":null}}"#
            )
        };
        let text = |version: u32, states: &str| {
            let revision = revision() + 1000; // other tests change it meanwhile
            format!(
                r#"{{"ronde_tuner_memory":{version},"revision":{revision},"contests":0,"stopped":false,"states":[{states}]}}"#
            )
        };
        assert!(learn("nonsense").is_err());
        assert!(learn(&text(1, "")).unwrap_err().contains("version 1"));
        let error = learn(&text(2, &state(-1.0))).unwrap_err();
        assert!(error.contains("sample 0 has step_ms -1"), "{error}");
        let many = vec![state(1.0); 17].join(",");
        assert!(learn(&text(2, &many)).unwrap_err().contains("17 states"));
    }
}
