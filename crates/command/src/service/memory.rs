//! State file of `ronde tune`: measurements of earlier runs and of this run.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use ronde_tuner::{
    Match, Observation, Point, STATE_VERSION, Session, SessionConfig, Space, State, StateError,
    StateSample, StateVerdict, Tuner,
};

use super::request::Problem;
use super::space::is_within;

/// State file with the key of its job.
pub(super) struct Memory {
    path: PathBuf,
    key: BTreeMap<String, String>,
    earlier: Option<(State, Match)>,
    /// Measurements of the same job and a verdict that this run does not use, since its parameters
    /// or bounds are others. They stay in the file.
    unused: Vec<StateSample>,
    unused_verdict: Option<StateVerdict>,
    /// Latest state of this run that has a verdict.
    decided: Option<State>,
    /// Reason why the file must not be used or written.
    foreign: Option<String>,
    /// Comparisons that this job has begun, as the file says.
    contests: u32,
}

impl Memory {
    /// Reads the file if it exists.
    pub(super) fn load(path: &Path, key: BTreeMap<String, String>) -> Self {
        let unusable = |reason: String| (None, Some(reason));
        let name = path.display();
        let (earlier, foreign) = match State::load(path) {
            Ok(state) => match state.matches(&key) {
                Some(matching) => (Some((state, matching)), None),
                None => unusable(format!(
                    "state file {name} is of another job (its key differs)"
                )),
            },
            Err(StateError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
                (None, None)
            }
            Err(error @ StateError::Io { .. }) => unusable(error.to_string()),
            Err(error) => unusable(format!("state file {name}: {error}")),
        };
        let of_job = |(state, matching): &(State, Match)| {
            (*matching == Match::Same).then_some(state.contests)
        };
        Self {
            path: path.to_owned(),
            key,
            contests: earlier.as_ref().and_then(of_job).unwrap_or(0),
            earlier,
            unused: Vec::new(),
            unused_verdict: None,
            decided: None,
            foreign,
        }
    }

    /// Warning about an unusable file.
    pub(super) fn warning(&self) -> Option<String> {
        let foreign = self.foreign.as_ref()?;
        Some(format!(
            "{foreign}; it is neither used nor written, give another path"
        ))
    }

    /// Sets measurements and a verdict outside of the space's bounds aside, which another run may
    /// have had wider. Returns a warning if there are any.
    pub(super) fn keep_within(&mut self, space: &Space) -> Option<String> {
        let (state, matching) = self.earlier.as_mut()?;
        let inside = |setting: &BTreeMap<String, f64>| {
            let mut parameters = space.parameters().iter();
            parameters.all(|parameter| {
                let value = setting.get(parameter.name());
                value.is_none_or(|&value| is_within(parameter, value))
            })
        };
        let before = state.samples.len();
        let is_outside = |sample: &mut StateSample| !inside(&sample.setting);
        let unused: Vec<StateSample> = state.samples.extract_if(.., is_outside).collect();
        let unused_verdict = state.verdict.take_if(|verdict| !inside(&verdict.chosen));
        let outside = unused.len();
        if *matching == Match::Same {
            (self.unused, self.unused_verdict) = (unused, unused_verdict);
        }
        (outside > 0).then(|| {
            format!(
                "state file {}: {outside} of {before} measurements are outside of the bounds and \
                 are not used",
                self.path.display()
            )
        })
    }

    /// Creates a session with the measurements of the file.
    pub(super) fn session(
        &self,
        space: Space,
        config: SessionConfig,
        start: Point,
    ) -> Result<Session, Problem> {
        let session = Session::new(space, config, start)?;
        Ok(match &self.earlier {
            Some((state, matching)) => session.resume(state, *matching),
            None => session,
        })
    }

    /// Adds the measurements of the same job to the tuner, without those whose settings are not in
    /// the space; a session warns of these.
    pub(super) fn tell(&mut self, tuner: &mut Tuner) {
        let state = self.earlier_of_this_job();
        let samples = state.map_or_else(Vec::new, |state| state.samples.clone());
        for sample in samples {
            let parameters = tuner.space().parameters().iter();
            let values = parameters.map(|parameter| sample.setting.get(parameter.name()).copied());
            let values = values.collect::<Option<Vec<f64>>>();
            let values = values.filter(|values| values.len() == sample.setting.len());
            let Some(Ok(point)) = values.map(|values| tuner.space().point(&values)) else {
                self.unused.push(sample);
                continue;
            };
            let observation = Observation {
                value: sample.step_ms,
                spread: sample.spread * sample.step_ms,
                steps: u32::try_from(sample.steps).unwrap_or(u32::MAX),
            };
            // An observation that the tuner refuses is a damaged one: it is skipped too.
            let _ = tuner.tell(point, observation);
        }
    }

    fn earlier_of_this_job(&self) -> Option<&State> {
        let (state, matching) = self.earlier.as_ref()?;
        (*matching == Match::Same).then_some(state)
    }

    /// Comparisons that this job has begun, as the file says.
    pub(super) fn contests(&self) -> u32 {
        self.contests
    }

    /// Writes the measurements of the session. A search without a verdict does not replace one.
    pub(super) fn save_session(&mut self, session: &Session) -> Result<(), StateError> {
        let decided = self.decided.as_ref().or(self.earlier_of_this_job());
        let state = session.state(self.key.clone(), &today());
        let state = state.or_decided(decided);
        self.contests = state.contests;
        self.save(state.clone())?;
        if state.verdict.is_some() {
            self.decided = Some(state);
        }
        Ok(())
    }

    pub(super) fn save_tuner(&self, tuner: &Tuner) -> Result<(), StateError> {
        let parameters = || tuner.space().parameters().iter();
        let named = |point: &Point| {
            let names = parameters().map(|parameter| parameter.name().to_owned());
            names.zip(point.values().iter().copied()).collect()
        };
        let estimates = tuner.estimates().into_iter();
        let samples = estimates.map(|(sample, seen)| StateSample {
            setting: named(&sample.point),
            step_ms: seen.log_time.exp(),
            spread: (seen.variance * sample.steps() as f64).sqrt(),
            steps: sample.steps(),
        });
        // Those of form 1, if the job was tuned in that way before.
        let earlier = self.earlier_of_this_job();
        self.save(State {
            ronde_tuner_state: STATE_VERSION,
            date: today(),
            key: self.key.clone(),
            contests: earlier.map_or(0, |state| state.contests),
            cost_steps: 0.0,
            start: named(&tuner.start()),
            samples: samples.collect(),
            verdict: earlier.and_then(|state| state.verdict.clone()),
        })
    }

    fn save(&self, mut state: State) -> Result<(), StateError> {
        if self.foreign.is_some() || state.samples.is_empty() {
            return Ok(());
        }
        for unused in &self.unused {
            // A session returns those of other parameters too.
            if state.samples.iter().all(|s| s.setting != unused.setting) {
                state.samples.push(unused.clone());
            }
        }
        let verdict = state.verdict.take().or(self.unused_verdict.clone());
        State { verdict, ..state }.save(&self.path)
    }
}

fn today() -> String {
    jiff::Zoned::now().strftime("%Y-%m-%d").to_string()
}
