//! Store of results of earlier runs: the state file, the autotune log, and the process's memory,
//! which later contexts use.
//!
//! The file is a state file of the tuner, with a key of its writer: the model (a hash of the step's
//! tensors), ranks, hosts, transport and version. A file that is no state file, or one of a newer
//! version, is not changed; one of another model is overwritten. For a job with steps of several
//! signatures, the process keeps all states, the file only one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use ronde_tuner::{
    LogRow, Match, STATE_MODEL, Scored, Session, State, StateError, read_log, read_text,
};

use super::memory;
use super::space::{Facts, Tunable};
use crate::knobs::{Backend, Knobs, Link};

/// Key of a state: properties of the job that wrote it.
pub(super) type Key = BTreeMap<String, String>;

/// State file and its key's constant parts.
#[derive(Debug)]
pub(super) struct Store {
    path: Option<PathBuf>,
    /// Requested backend.
    backend: Backend,
    link: Option<Link>,
    /// Whether the file has been read.
    read: bool,
    /// Whether the job has had other ranks: the process's memory is then of this job.
    is_reset: bool,
    /// States with a verdict, which a search without one must not replace.
    decided: BTreeMap<Key, State>,
    /// Jobs whose verdict a drift has refuted; the file keeps it, since the next run compares it
    /// anew.
    refuted: BTreeSet<Key>,
    /// The state in the file, if it is a state of this job.
    saved: Option<State>,
}

/// Whether a state of the key `one` is of the job with the key `other`, perhaps of steps of another
/// signature.
pub(super) fn is_of_job(one: &Key, other: &Key) -> bool {
    let rest = |key: &Key| {
        let mut key = key.clone();
        key.remove(STATE_MODEL);
        key
    };
    rest(one) == rest(other)
}

impl Store {
    pub(super) fn new(knobs: &Knobs) -> Self {
        Self {
            path: knobs.autotune_state.clone(),
            backend: knobs.backend,
            link: knobs.link,
            read: false,
            is_reset: knobs.resets > 0,
            decided: BTreeMap::new(),
            refuted: BTreeSet::new(),
            saved: None,
        }
    }

    /// Returns the key of a job that trains `model`.
    pub(super) fn key(&self, model: u64, facts: &Facts) -> Key {
        let transport = match self.backend {
            Backend::Nccl => "nccl",
            _ if facts.on_gpu => "nccl",
            Backend::Mpi => "mpi",
            Backend::Tcp => "tcp",
            Backend::Auto | Backend::Local if facts.hosts.count > 1 => "mpi",
            Backend::Auto | Backend::Local => "local",
        };
        let transport = match self.link {
            None => transport.to_owned(),
            Some(Link { alpha_us, gb_per_s }) => {
                format!("{transport}, shaped to {alpha_us},{gb_per_s}")
            }
        };
        let entries = [
            (STATE_MODEL, format!("{model:016x}")),
            ("ranks", facts.ranks.to_string()),
            ("hosts", facts.hosts.count.to_string()),
            ("transport", transport),
            ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ];
        entries.map(|(name, value)| (name.to_owned(), value)).into()
    }

    /// Returns the state of the job with that key, or of a similar one.
    pub(super) fn recall(&mut self, key: &Key) -> Option<(State, Match)> {
        let (of_file, of_memory) = (self.read(key), memory::recall(key));
        let is_same = |found: &Option<(State, Match)>| {
            found.as_ref().is_some_and(|(_, near)| *near == Match::Same)
        };
        // The state of this very job comes first; of two, after a reset that of the memory.
        let remembers = match (is_same(&of_memory), is_same(&of_file)) {
            (true, false) => true,
            (false, true) => false,
            _ => self.is_reset,
        };
        let found = match remembers {
            true => of_memory.or(of_file),
            false => of_file.or(of_memory),
        };
        if let Some((state, Match::Same)) = &found
            && state.verdict.is_some()
        {
            self.decided.insert(key.clone(), state.clone());
        }
        found
    }

    /// Comparisons that this job and its earlier runs have begun, as far as the file says so: they
    /// share one error.
    pub(super) fn contests(&self) -> u32 {
        self.saved.as_ref().map_or(0, |state| state.contests)
    }

    /// Reads the state from the file; only once, because later the file contains what this process
    /// has saved.
    fn read(&mut self, key: &Key) -> Option<(State, Match)> {
        if std::mem::replace(&mut self.read, true) {
            return None;
        }
        let path = self.path.as_ref()?;
        let name = "RONDE_AUTOTUNE_STATE";
        let state = match State::load(path) {
            Ok(state) => state,
            Err(StateError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                return None;
            }
            Err(error) => {
                let path = path.display();
                tracing::warn!(
                    "autotune: {name}={path}: {error}; continuing without it, and leaving the file unchanged"
                );
                self.path = None;
                return None;
            }
        };
        let Some(matching) = state.matches(key) else {
            let model = |key: &Key| key.get(STATE_MODEL).cloned().unwrap_or_default();
            let (path, theirs, ours) = (path.display(), model(&state.key), model(key));
            tracing::warn!(
                "autotune: {name}={path} is of another model ({theirs}, this is {ours}); continuing without it; \
                 it is replaced at the verdict or at the end"
            );
            if is_of_job(&state.key, key) {
                self.saved = Some(state.clone());
            }
            memory::remember(state); // it may be of a signature that occurs later
            return None;
        };
        if matching == Match::Same {
            self.saved = Some(state.clone());
        }
        Some((state, matching))
    }

    /// The verdict for this job no longer holds: its step time has changed.
    pub(super) fn refute(&mut self, key: Key) {
        self.refuted.insert(key);
    }

    /// Stores the state of `session`, also in the file if `in_file`. If it has no verdict and the
    /// stored state of that key has one, that state stays; after drift, in the file alone. The job
    /// has begun `contests` comparisons, which the file states in any case.
    pub(super) fn keep(&mut self, session: &Session, key: Key, in_file: bool, contests: u32) {
        let date = jiff::Timestamp::now()
            .strftime("%Y-%m-%dT%H:%M:%SZ")
            .to_string();
        let mut state = session.state(key, &date);
        state.contests = state.contests.max(contests);
        memory::count_contests(state.contests);
        if !in_file
            && let Some(saved) = &self.saved
            && saved.contests < contests
        {
            let saved = saved.clone();
            self.save(State { contests, ..saved });
        }
        if state.verdict.is_some() {
            self.refuted.remove(&state.key);
        }
        let is_refuted = self.refuted.contains(&state.key);
        let undecided = is_refuted.then(|| state.clone());
        let decided = self.decided.get(&state.key);
        let state = state.or_decided(decided);
        if state.samples.is_empty() {
            return;
        }
        if state.verdict.is_some() {
            self.decided.insert(state.key.clone(), state.clone());
        }
        if in_file {
            self.save(state.clone());
        }
        memory::remember(undecided.unwrap_or(state));
    }

    /// Writes the file, if there is one.
    fn save(&mut self, state: State) {
        let Some(path) = &self.path else { return };
        if let Err(error) = state.save(path) {
            tracing::warn!("autotune: RONDE_AUTOTUNE_STATE: {error}; the results are not saved");
            self.path = None;
        }
        self.saved = Some(state);
    }
}

/// Returns the trials in the autotune log at `path` that are usable here; errors in it cause a
/// warning.
pub(super) fn history(path: &Path, tunable: &Tunable) -> Vec<Scored> {
    let name = format!("RONDE_AUTOTUNE_PRIOR={}", path.display());
    let text = match read_text(path) {
        Ok(text) => text,
        Err(error) => {
            tracing::warn!("autotune: {name}: {error}; continuing without it");
            return Vec::new();
        }
    };
    let log = match read_log(&text) {
        Ok(log) => log,
        Err(error) => {
            tracing::warn!("autotune: {name}: {error}; continuing without it");
            return Vec::new();
        }
    };
    for warning in &log.warnings {
        tracing::warn!("autotune: {name}: {warning}");
    }
    // After drift, and for steps of another signature, the scores are not comparable with those
    // before.
    let begins = |row: &&LogRow| row.phase.as_deref() == Some("default");
    let first_line = log.rows.iter().rfind(begins).map_or(0, |row| row.line);
    let trials: Vec<&LogRow> = log.trials().filter(|row| row.line >= first_line).collect();
    let scored: Vec<Scored> = trials
        .iter()
        .filter_map(|row| scored(row, tunable))
        .collect();
    if scored.len() < trials.len() {
        let (used, all) = (scored.len(), trials.len());
        tracing::warn!(
            "autotune: {name}: {used} of {all} trials are of settings that can be chosen here"
        );
    }
    scored
}

fn scored(row: &LogRow, tunable: &Tunable) -> Option<Scored> {
    let is_other = |on_gpu| on_gpu != tunable.on_gpu; // another threshold
    if row.torus_allreduce == Some(true) || row.on_gpu.is_some_and(is_other) {
        return None;
    }
    let flag = |on: bool| f64::from(u8::from(on));
    let values = [
        row.fusion_mb?,
        row.cycle_time_ms?,
        flag(row.cache_enabled.unwrap_or(true)),
        flag(row.hierarchical_allreduce.unwrap_or(false)),
        flag(row.hierarchical_allgather.unwrap_or(false)),
    ];
    Some(Scored {
        row: usize::try_from(row.line).ok()?,
        values: tunable.point(values)?.values().to_vec(),
        score: row.score?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Hosts;

    /// Two ranks of one host.
    fn facts() -> Facts {
        Facts {
            ranks: 2,
            hosts: Hosts::one(2),
            tensors: None,
            allgathers: false,
            on_gpu: false,
        }
    }

    fn tunable(env: &[(&str, &str)]) -> Tunable {
        Tunable::new(&Knobs::of(env), &facts()).unwrap()
    }

    #[test]
    fn comparisons_count_for_steps_of_other_signatures_and_a_verdict_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.json");
        let file = path.display().to_string();
        let knobs = Knobs::of(&[("RONDE_AUTOTUNE_STATE", &file)]);
        let facts = facts();
        let key = |model| Store::new(&knobs).key(model, &facts);
        let tunable = tunable(&[]);
        let session = crate::autotune::search::new_session(&knobs, &tunable).unwrap();
        let mut state = session.state(key(0x5708e), "");
        state.contests = 3;
        let setting = state.start.clone();
        state.samples = vec![ronde_tuner::StateSample {
            setting: setting.clone(),
            step_ms: 10.0,
            spread: 0.02,
            steps: 10,
        }];
        state.verdict = Some(ronde_tuner::StateVerdict {
            kept_default: true,
            chosen: setting,
            default_step_ms: 10.0,
            chosen_step_ms: 10.0,
            gain_pct: [0.0; 2],
            reason: "default kept".into(),
        });
        state.save(&path).unwrap();

        let mut other = Store::new(&knobs);
        assert!(other.recall(&key(0x5708f)).is_none());
        assert_eq!(other.contests(), 3);
        let mut elsewhere = Store::new(&knobs);
        let ranks = Facts { ranks: 4, ..facts };
        assert!(elsewhere.recall(&elsewhere.key(0x5708f, &ranks)).is_none());
        assert_eq!(elsewhere.contests(), 0, "another job");

        let mut store = Store::new(&knobs);
        assert_eq!(store.recall(&key(0x5708e)).unwrap().1, Match::Same);
        store.keep(&session, key(0x5708e), true, 5);
        let kept = State::load(&path).unwrap();
        assert_eq!((kept.contests, kept.verdict), (5, state.verdict.clone()));
        // Comparisons of other steps count in the file, too.
        store.keep(&session, key(0x5708f), false, 6);
        let kept = State::load(&path).unwrap();
        assert_eq!((kept.contests, kept.key), (6, state.key));
        // After drift a reset of the job does not put the verdict in force; the next run compares
        // it.
        store.refute(key(0x5708e));
        store.keep(&session, key(0x5708e), true, 7);
        assert!(State::load(&path).unwrap().verdict.is_some());
        let remembered = memory::recall(&key(0x5708e)).unwrap().0;
        assert!(remembered.verdict.is_none());
    }

    #[test]
    fn a_log_gives_the_trials_since_its_last_default() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        let log = "phase,hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,cycle_time_ms,\
                   tensor_fusion_threshold,score\n\
                   default,0,0,0,1,1,128,100\nsample,0,0,0,1,5,4,140\n\
                   default,0,0,0,1,5,4,30\nsample,0,0,0,1,5,32,35\n";
        std::fs::write(&path, log).unwrap();
        let scores = |scored: &Scored| (scored.row, scored.score);
        let scored: Vec<_> = history(&path, &tunable(&[])).iter().map(scores).collect();
        assert_eq!(scored, [(4, 30.0), (5, 35.0)]);
    }

    #[test]
    fn a_log_gives_its_trials_as_far_as_they_apply() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        let horovod = "hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,cycle_time_ms,\
                       tensor_fusion_threshold,score\n\
                       0,0,0, 1,5,4,142.1\n1,0,0, 1,5,4,150\n0,0,0, 1,50,32,170\n0,0,0, 0,50,32,160\n\
                       0,0,0, 1,50,32,170\n";
        std::fs::write(&path, horovod).unwrap();
        let rows = |tunable: &Tunable| -> Vec<(usize, f64)> {
            history(&path, tunable)
                .iter()
                .map(|scored| (scored.row, scored.score))
                .collect()
        };
        // The second is hierarchical, the fourth has no cache and that is not tuned, the last
        // repeats the best.
        assert_eq!(rows(&tunable(&[])), [(2, 142.1), (4, 170.0)]);
        assert_eq!(
            rows(&tunable(&[("RONDE_AUTOTUNE_CACHE", "1")])),
            [(2, 142.1), (4, 170.0), (5, 160.0)]
        );
        assert_eq!(rows(&tunable(&[("HOROVOD_CYCLE_TIME", "5")])), [(2, 142.1)]);
        let lines = horovod.lines().zip(["on_gpu", "1", "0", "0", "0", "0"]);
        let lines: Vec<String> = lines
            .map(|(line, more)| format!("{line},{more}\n"))
            .collect();
        std::fs::write(&path, lines.concat()).unwrap();
        assert_eq!(rows(&tunable(&[])), [(4, 170.0)], "the first is of GPUs");
        std::fs::write(&path, "x,y\n1,2\n").unwrap();
        assert!(rows(&tunable(&[])).is_empty());
        std::fs::remove_file(&path).unwrap();
        assert!(rows(&tunable(&[])).is_empty());
    }

    #[test]
    fn a_key_names_who_wrote_it() {
        let (knobs, facts) = (Knobs::of(&[("RONDE_LINK", "1000,2.5")]), facts());
        let key = Store::new(&knobs).key(0xab, &facts);
        assert_eq!(key[STATE_MODEL], "00000000000000ab");
        assert_eq!(
            (&*key["ranks"], &*key["transport"]),
            ("2", "local, shaped to 1000,2.5")
        );
        let on_gpu = Facts {
            on_gpu: true,
            ..facts
        };
        let key = Store::new(&Knobs::default()).key(0xab, &on_gpu);
        assert_eq!(&*key["transport"], "nccl");
        let spread = Facts {
            hosts: Hosts::of([1, 1]),
            ..facts
        };
        let key = Store::new(&Knobs::default()).key(0xab, &spread);
        assert_eq!((&*key["hosts"], &*key["transport"]), ("2", "mpi"));
    }
}
