//! State machine of the service: computes the answer to each line.

use std::panic::resume_unwind;
use std::path::PathBuf;
use std::thread::{self, JoinHandle};

use ronde_tuner::{
    Next, Proposal, Purpose, Session, SessionConfig, StateError, Tuner, TunerConfig,
};
use serde_json::Value;

use super::answer::{Action, Answer, Standing, Suggestion, VerdictLine};
use super::memory::Memory;
use super::request::{Problem, Request, Tell};
use super::space::{SpaceLine, point, setting};

/// Half width of a 95 % interval, in standard errors.
const INTERVAL_95: f64 = 1.96;

/// The tuner as a service, with the state of its conversation.
pub struct Service {
    stage: Stage,
    /// Path of the state file; `memory` has its contents after the first line has given the key.
    state: Option<PathBuf>,
    memory: Option<Memory>,
    computes_ahead: bool,
}

enum Stage {
    /// Before the first line.
    Nothing,
    /// After the first line. The first request decides between the two forms of the search.
    Ready {
        session: Box<Session>,
        tuner: Tuner,
        /// The setting to begin with, if the program does not know it.
        untold: Option<Value>,
    },
    /// The program reports steps.
    Steps {
        session: Box<Session>,
        untold: Option<Value>,
        /// The proposal that is computed during the next step.
        ahead: Option<JoinHandle<Proposal>>,
    },
    /// The program asks for settings and reports measurements.
    AskTell { tuner: Tuner },
}

impl Service {
    /// Creates a service that saves its measurements to this file.
    pub fn new(state: Option<PathBuf>) -> Self {
        Self {
            stage: Stage::Nothing,
            state,
            memory: None,
            computes_ahead: false,
        }
    }

    /// Computes proposals in a thread, while the program makes its next step. That step is a
    /// further one at the setting in force, and the answer to it has the proposal. So equal steps
    /// still give equal answers.
    pub fn computing_ahead(self) -> Self {
        Self {
            computes_ahead: true,
            ..self
        }
    }

    /// Returns the answer to a line of the protocol in `docs/TUNE.md`: a line of JSON.
    pub fn reply(&mut self, line: &str) -> String {
        self.answer(line, 1).to_string()
    }

    /// Reports steps as lines with `step_ms` do, up to the first one whose answer is not to keep
    /// the setting; returns that answer. A proposal that is computed ahead is taken at the first
    /// step of a later call, so that this one does not wait for it.
    pub fn steps(&mut self, steps_ms: &[f64]) -> Option<String> {
        for (index, &step_ms) in steps_ms.iter().enumerate() {
            let answer = self.follow(Request::StepMs(step_ms), index == 0);
            match answer.unwrap_or_else(|problem| problem.answer(1)) {
                Answer::Action(Action::Keep) => {}
                answer => return Some(answer.to_string()),
            }
        }
        None
    }

    /// Whether the parameters are known.
    pub fn is_open(&self) -> bool {
        !matches!(self.stage, Stage::Nothing)
    }

    /// Whether the next step is measured: during the search, and in a check after its verdict.
    pub fn measures(&self) -> bool {
        match &self.stage {
            Stage::Steps { session, .. } => session.purpose() != Purpose::None,
            _ => true,
        }
    }

    /// Sets the parameters, as the first line does; returns the warnings of its answer. If the state
    /// file has another setting to begin with than the start, the answer to the first step is to
    /// switch to it.
    ///
    /// # Errors
    /// The line is not valid.
    pub fn open(&mut self, line: &str) -> Result<Vec<String>, Problem> {
        let line = SpaceLine::parse(line)?;
        let (space, start) = line.space()?;
        let (answer, began) = (self.ready(line)?, setting(&space, &start));
        let Answer::Ready {
            setting, warnings, ..
        } = answer
        else {
            return Ok(Vec::new());
        };
        if let Stage::Ready { untold, .. } = &mut self.stage {
            *untold = (setting != began).then_some(setting);
        }
        Ok(warnings)
    }

    /// Handles the first line.
    fn ready(&mut self, line: SpaceLine) -> Result<Answer, Problem> {
        let (space, start) = line.space()?;
        let defaults = SessionConfig::default();
        let mut config = SessionConfig {
            seed: line.seed.unwrap_or(defaults.seed),
            max_samples: line.max_samples.unwrap_or(defaults.max_samples),
            steps_per_sample: line.steps_per_sample.unwrap_or(defaults.steps_per_sample),
            ..defaults
        };
        if let Some(steps) = line.steps {
            config = config.with_horizon(steps);
        }
        let tuner = TunerConfig {
            seed: config.seed,
            max_samples: config.max_samples,
            // A score may be one measurement, or the mean of any number.
            sample_steps: None,
            ..TunerConfig::default()
        };
        let mut tuner = Tuner::new(space.clone(), tuner, start)?;
        let mut memory = self.state.as_ref().map(|path| Memory::load(path, line.key));
        let mut warnings: Vec<String> = memory.iter().filter_map(Memory::warning).collect();
        warnings.extend(
            memory
                .as_mut()
                .and_then(|memory| memory.keep_within(&space)),
        );
        let session = match &mut memory {
            Some(memory) => {
                memory.tell(&mut tuner);
                memory.session(space.clone(), config, start)?
            }
            None => Session::new(space.clone(), config, start)?,
        };
        let mut session = Box::new(session);
        warnings.extend(session.take_warnings().iter().map(ToString::to_string));
        let ready = Answer::Ready {
            settings: tuner.candidates(),
            setting: setting(&space, &session.setting()),
            warnings,
        };
        self.memory = memory;
        self.stage = Stage::Ready {
            session,
            tuner,
            untold: None,
        };
        Ok(ready)
    }

    /// Returns the answer to line `number`, counted from 1.
    pub(super) fn answer(&mut self, line: &str, number: u64) -> Answer {
        let answer = if self.is_open() {
            Request::parse(line).and_then(|request| self.follow(request, true))
        } else {
            SpaceLine::parse(line).and_then(|line| self.ready(line))
        };
        answer.unwrap_or_else(|problem| problem.answer(number))
    }

    /// Answers a request; to a step with `takes_ahead`, the proposal that was computed ahead.
    fn follow(&mut self, request: Request, takes_ahead: bool) -> Result<Answer, Problem> {
        if matches!(request, Request::StepMs(_)) {
            self.begin_steps();
        }
        match (&mut self.stage, request) {
            (
                Stage::Steps {
                    session,
                    untold,
                    ahead,
                },
                Request::StepMs(step_ms),
            ) => {
                if let Some(setting) = untold.take() {
                    // The step was one of the start, which is not in force.
                    return Ok(Answer::Action(Action::Switch {
                        setting,
                        warnings: Vec::new(),
                    }));
                }
                let computed = takes_ahead.then(|| ahead.take()).flatten();
                let mut action = step(session, computed, step_ms);
                if action == ronde_tuner::Action::Ask {
                    *ahead = self.computes_ahead.then(|| compute(session)).flatten();
                    if ahead.is_none() {
                        // The program waits for the answer anyway.
                        action = session.propose(session.proposal_job().run());
                    }
                }
                if let Some(memory) = &mut self.memory
                    && session.contests() > memory.contests()
                {
                    // A job that is killed has spent its error. If the file cannot be written, the
                    // verdict says so.
                    let _ = memory.save_session(session);
                }
                let memory = self.memory.as_mut();
                Ok(Answer::Action(answer_to_step(session, action, memory)))
            }
            (Stage::AskTell { tuner } | Stage::Ready { tuner, .. }, Request::Ask(_)) => {
                let answer = ask(tuner);
                self.begin_asking();
                Ok(answer)
            }
            (Stage::AskTell { tuner } | Stage::Ready { tuner, .. }, Request::Tell(tell_of)) => {
                // One that is not valid decides nothing.
                tell(tuner, &tell_of)?;
                let settings = tuner.samples().len();
                self.begin_asking();
                // A search that is killed keeps what was measured.
                let unsaved = self.save().err().map(|error| error.to_string());
                Ok(Answer::Told {
                    settings,
                    warnings: unsaved.into_iter().collect(),
                })
            }
            (Stage::Steps { session, .. }, Request::Report(_)) => {
                verdict(session).ok_or_else(|| {
                    Problem::new("no step has been measured yet", "report step_ms first")
                })
            }
            (Stage::AskTell { tuner } | Stage::Ready { tuner, .. }, Request::Report(_)) => {
                standing(tuner).map(Answer::Report).ok_or_else(|| {
                    Problem::new(
                        "the start setting has not been measured yet",
                        "ask, and tell what was measured",
                    )
                })
            }
            (Stage::Steps { .. }, _) => Err(Problem::new(
                "this search uses step_ms, whose answers contain the settings",
                "do what the answer to each step_ms says, or start another ronde tune for ask and \
                 tell",
            )),
            (Stage::AskTell { .. }, _) => Err(Problem::new(
                "this search uses ask and tell",
                "tell what was measured, or start another ronde tune for step_ms",
            )),
            (Stage::Nothing | Stage::Ready { .. }, _) => Err(Problem::new(
                "the parameters are not known yet",
                "give them on the first line",
            )),
        }
    }

    /// Decides that the program reports steps, if nothing is decided yet.
    fn begin_steps(&mut self) {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Nothing) {
            Stage::Ready {
                session, untold, ..
            } => Stage::Steps {
                session,
                untold,
                ahead: None,
            },
            decided => decided,
        };
    }

    /// Decides that the program asks for settings, if nothing is decided yet.
    fn begin_asking(&mut self) {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Nothing) {
            Stage::Ready { tuner, .. } => Stage::AskTell { tuner },
            decided => decided,
        };
    }

    /// Returns the answer at the end of the input.
    pub(super) fn end(&self) -> Option<Answer> {
        match &self.stage {
            Stage::Steps { session, .. } => verdict(session),
            Stage::AskTell { tuner } => standing(tuner).map(Answer::Report),
            Stage::Nothing | Stage::Ready { .. } => None,
        }
    }

    /// Writes the state file, if there is one.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&mut self) -> Result<(), StateError> {
        match (&mut self.memory, &self.stage) {
            (Some(memory), Stage::Steps { session, .. }) => memory.save_session(session),
            (Some(memory), Stage::AskTell { tuner }) => memory.save_tuner(tuner),
            _ => Ok(()),
        }
    }
}

fn step(
    session: &mut Session,
    computed: Option<JoinHandle<Proposal>>,
    step_ms: f64,
) -> ronde_tuner::Action {
    let action = session.on_step(step_ms);
    let Some(proposal) = computed else {
        return action;
    };
    let proposal = proposal.join().unwrap_or_else(|panic| resume_unwind(panic));
    match session.propose(proposal) {
        ronde_tuner::Action::Keep => action,
        decided => decided,
    }
}

/// Begins to compute a proposal, which takes some milliseconds. None if the process may have no
/// other thread.
fn compute(session: &Session) -> Option<JoinHandle<Proposal>> {
    let job = session.proposal_job();
    let thread = thread::Builder::new().name("ronde-proposal".into());
    thread.spawn(move || job.run()).ok()
}

fn answer_to_step(
    session: &mut Session,
    action: ronde_tuner::Action,
    memory: Option<&mut Memory>,
) -> Action {
    if action == ronde_tuner::Action::Keep {
        return Action::Keep;
    }
    let space = session.space().clone();
    let mut warnings = || -> Vec<String> {
        session
            .take_warnings()
            .iter()
            .map(ToString::to_string)
            .collect()
    };
    match action {
        ronde_tuner::Action::Keep | ronde_tuner::Action::Ask => Action::Keep,
        ronde_tuner::Action::Switch(point) => Action::Switch {
            setting: setting(&space, &point),
            warnings: warnings(),
        },
        ronde_tuner::Action::Finished(verdict) => {
            let mut warnings = warnings();
            let unsaved = memory.and_then(|memory| memory.save_session(session).err());
            warnings.extend(unsaved.map(|error| error.to_string()));
            Action::Finished {
                verdict: VerdictLine::new(&space, &verdict),
                warnings,
            }
        }
        ronde_tuner::Action::Drifted(drift) => Action::Drifted {
            before_ms: drift.before_ms,
            after_ms: drift.after_ms,
        },
    }
}

fn verdict(session: &Session) -> Option<Answer> {
    let verdict = session.verdict_if_stopped()?;
    Some(Answer::Verdict(VerdictLine::new(session.space(), &verdict)))
}

fn tell(tuner: &mut Tuner, tell: &Tell) -> Result<(), Problem> {
    let point = point(tuner.space(), &tell.setting)?;
    Ok(tuner.tell(point, tell.observation())?)
}

fn ask(tuner: &mut Tuner) -> Answer {
    let proposal = tuner.ask();
    let (center, sd) = proposal.prediction;
    let predicted = [center, center - sd, center + sd].map(f64::exp);
    match proposal.next {
        Next::Sample(point) => Answer::Sample(Suggestion {
            setting: setting(tuner.space(), &point),
            predicted: predicted.iter().all(|p| p.is_finite()).then_some(predicted),
            improvement_pct: (proposal.improvement.is_finite())
                .then(|| 100.0 * (1.0 - (-proposal.improvement).exp())),
            warnings: texts(&proposal),
        }),
        Next::Stop => Answer::Stop(standing_of(tuner, &proposal)),
    }
}

fn standing(tuner: &Tuner) -> Option<Standing> {
    tuner.sample(&tuner.start())?;
    // The proposal is computed but not taken, so that it does not affect the next `ask`.
    Some(standing_of(tuner, &tuner.job().run()))
}

fn standing_of(tuner: &Tuner, proposal: &Proposal) -> Standing {
    let (mean, sd) = proposal.gain;
    let percent = |gain: f64| 100.0 * (1.0 - (-gain).exp());
    Standing {
        setting: setting(tuner.space(), &proposal.incumbent),
        gain_pct: [
            percent(mean - INTERVAL_95 * sd),
            percent(mean + INTERVAL_95 * sd),
        ],
        settings: tuner.samples().len(),
        warnings: texts(proposal),
    }
}

fn texts(proposal: &Proposal) -> Vec<String> {
    proposal.warnings.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use ronde_tuner::State;
    use serde_json::json;

    use super::*;

    const FIRST_LINE: &str =
        r#"{"parameters":[{"name":"a","scale":"log","low":1,"high":256}],"start":{"a":25}}"#;

    /// Answers until the verdict, for a job whose steps take 100 ms at 80 and more elsewhere.
    fn answers(mut service: Service) -> Vec<Value> {
        let mut answers: Vec<Value> =
            vec![serde_json::from_str(&service.reply(FIRST_LINE)).unwrap()];
        let mut setting = 25.0;
        while !answers.iter().any(|answer| answer["action"] == "finished") && answers.len() < 1000 {
            let noise = (answers.len() * 7 % 11) as f64 / 10.0;
            let step_ms = 100.0 + 3.0 * f64::powi(f64::log2(setting / 80.0), 2) + noise;
            let answer = service.reply(&json!({ "step_ms": step_ms }).to_string());
            let answer: Value = serde_json::from_str(&answer).unwrap();
            setting = answer["setting"]["a"].as_f64().unwrap_or(setting);
            answers.push(answer);
        }
        answers
    }

    #[test]
    fn a_proposal_that_is_computed_ahead_comes_one_step_later_and_is_the_same_every_time() {
        let first_switch = |answers: &[Value]| {
            let is_switch = |answer: &Value| answer["action"] == "switch";
            answers.iter().position(is_switch).unwrap()
        };
        let waited = answers(Service::new(None));
        let ahead = answers(Service::new(None).computing_ahead());
        assert_eq!(first_switch(&ahead), first_switch(&waited) + 1);
        assert_eq!(ahead.last().unwrap()["action"], "finished");
        assert_eq!(ahead, answers(Service::new(None).computing_ahead()));
    }

    #[test]
    fn a_short_job_does_not_replace_the_verdict_of_an_earlier_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.json");
        answers(Service::new(Some(path.clone())));
        let first = State::load(&path).unwrap();
        let verdict = first.verdict.as_ref().expect("a verdict");
        assert!(!verdict.kept_default);
        for round in 1..3 {
            let mut service = Service::new(Some(path.clone()));
            let ready: Value = serde_json::from_str(&service.reply(FIRST_LINE)).unwrap();
            assert_eq!(ready["ready"]["setting"]["a"], verdict.chosen["a"]);
            assert!(service.measures());
            // Neither ends in order.
            (0..5).for_each(|_| drop(service.reply(r#"{"step_ms":100}"#)));
            let saved = State::load(&path).unwrap();
            assert_eq!(saved.verdict, first.verdict);
            assert_eq!(saved.samples, first.samples);
            assert_eq!(saved.contests, first.contests + round, "each has begun one");
        }
    }

    #[test]
    fn measurements_are_in_the_file_at_once_and_stay_there_if_a_run_does_not_use_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.json");
        let told = |parameter: Value, start: f64, values: &[f64]| {
            let name = parameter["name"].as_str().unwrap().to_owned();
            let mut service = Service::new(Some(path.clone()));
            let line = json!({ "parameters": [parameter], "start": { &name: start } });
            let ready = service.reply(&line.to_string());
            assert!(ready.contains("ready"), "{ready}");
            for value in values {
                let setting = json!({ &name: value });
                let line = json!({ "tell": { "setting": setting, "value": 100.0 + value } });
                let answer = service.reply(&line.to_string());
                assert!(answer.contains("told"), "{answer}");
            }
            // Killed: no end of the input, no save.
        };
        let saved = |name: &str| {
            let samples = State::load(&path).unwrap().samples;
            let values = samples.iter().filter_map(|sample| sample.setting.get(name));
            let mut values: Vec<f64> = values.copied().collect();
            values.sort_by(f64::total_cmp);
            values
        };
        let a = |low: f64, high: f64| json!({ "name": "a", "scale": "linear", "low": low, "high": high });
        told(a(0.0, 256.0), 1.0, &[1.0, 32.0, 200.0]);
        assert_eq!(saved("a"), [1.0, 32.0, 200.0]);
        told(a(16.0, 64.0), 32.0, &[64.0]);
        assert_eq!(saved("a"), [1.0, 32.0, 64.0, 200.0]);
        told(
            json!({ "name": "b", "scale": "linear", "low": 0, "high": 1, "levels": 3 }),
            0.0,
            &[0.5],
        );
        assert_eq!((saved("a").len(), saved("b")), (4, vec![0.5]));
    }

    #[test]
    fn a_request_that_is_not_valid_decides_no_form() {
        let mut service = Service::new(None);
        service.reply(FIRST_LINE);
        let answer = service.reply(r#"{"tell":{"setting":{"b":1},"value":3}}"#);
        assert!(
            answer.contains(r#"the space has no parameter \"b\""#),
            "{answer}"
        );
        assert_eq!(service.reply(r#"{"step_ms":100}"#), r#"{"action":"keep"}"#);
    }

    #[test]
    fn steps_are_taken_up_to_a_change_and_none_waits_for_a_proposal_of_the_same_call() {
        let opened = || {
            let mut service = Service::new(None).computing_ahead();
            service.reply(FIRST_LINE);
            service
        };
        let (mut at_once, mut singly) = (opened(), opened());
        let steps = [100.0; 40];
        // In one call, the proposal for the second sample is begun and not taken.
        assert_eq!(at_once.steps(&steps), None);
        let change = at_once.steps(&steps).expect("the proposal");
        assert!(change.contains(r#""action":"switch""#), "{change}");
        let count = (1..40).find(|_| singly.steps(&[100.0]).is_some());
        assert!(count.is_some_and(|count| count < 20), "{count:?}");
    }
}
