//! The service: which answer follows a line.

use ronde_tuner::{Next, Proposal, Session, SessionConfig, Tuner, TunerConfig};

use super::answer::{Action, Answer, Standing, Suggestion, VerdictLine};
use super::request::{Problem, Request, Tell};
use super::space::{SpaceLine, point, setting};

/// Standard errors to either side in a 95 % interval.
const INTERVAL_95: f64 = 1.96;

/// What has been said so far.
pub(super) struct Service {
    stage: Stage,
}

enum Stage {
    /// The first line is awaited.
    Nothing,
    /// It has come; the first request says in which form the search goes on.
    Ready { session: Box<Session>, tuner: Tuner },
    /// Steps are reported.
    Steps { session: Box<Session> },
    /// Settings are asked for and told of.
    AskTell { tuner: Tuner },
}

impl Service {
    pub(super) fn new() -> Self {
        Self {
            stage: Stage::Nothing,
        }
    }

    /// Whether the parameters are known.
    pub(super) fn has_space(&self) -> bool {
        !matches!(self.stage, Stage::Nothing)
    }

    /// Takes the first line.
    pub(super) fn set_space(&mut self, text: &str) -> Result<Answer, Problem> {
        let line = SpaceLine::parse(text)?;
        let (space, start) = line.space()?;
        let defaults = SessionConfig::default();
        let config = SessionConfig {
            seed: line.seed.unwrap_or(defaults.seed),
            max_samples: line.max_samples.unwrap_or(defaults.max_samples),
            steps_per_sample: line.steps_per_sample.unwrap_or(defaults.steps_per_sample),
            ..defaults
        };
        let tuner = TunerConfig {
            seed: config.seed,
            max_samples: config.max_samples,
            ..TunerConfig::default()
        };
        let tuner = Tuner::new(space.clone(), tuner, start)?;
        let session = Session::new(space.clone(), config, start)?;
        let ready = Answer::Ready {
            settings: tuner.candidates(),
            setting: setting(&space, &session.setting()),
        };
        self.stage = Stage::Ready {
            session: Box::new(session),
            tuner,
        };
        Ok(ready)
    }

    /// The answer to line `number`, counted from 1.
    pub(super) fn answer(&mut self, line: &str, number: u64) -> Answer {
        let answer = if self.has_space() {
            Request::parse(line).and_then(|request| self.follow(request))
        } else {
            self.set_space(line)
        };
        answer.unwrap_or_else(|problem| problem.answer(number))
    }

    fn follow(&mut self, request: Request) -> Result<Answer, Problem> {
        self.decide(&request);
        match (&mut self.stage, request) {
            (Stage::Steps { session }, Request::Step(step_ms)) => Ok(Answer::Action(step(session, step_ms))),
            (Stage::AskTell { tuner }, Request::Ask) => Ok(ask(tuner)),
            (Stage::AskTell { tuner }, Request::Tell(tell_of)) => tell(tuner, &tell_of),
            (Stage::Steps { session }, Request::Report) => verdict(session)
                .ok_or_else(|| Problem::new("no step has been measured yet", "report step_ms first")),
            (Stage::AskTell { tuner } | Stage::Ready { tuner, .. }, Request::Report) => {
                standing(tuner).map(Answer::Report).ok_or_else(|| {
                    Problem::new(
                        "the start setting has not been measured yet",
                        "ask, and tell what was measured",
                    )
                })
            }
            (Stage::Steps { .. }, _) => Err(Problem::new(
                "this search goes by step_ms, which asks by itself",
                "do what the answer to each step_ms says, or start another ronde tune for ask and tell",
            )),
            (Stage::AskTell { .. }, _) => Err(Problem::new(
                "this search goes by ask and tell",
                "tell what was measured, or start another ronde tune for step_ms",
            )),
            (Stage::Nothing | Stage::Ready { .. }, _) => Err(Problem::new(
                "the parameters are not known yet",
                "give them on the first line",
            )),
        }
    }

    /// The first request that is more than a question decides the form.
    fn decide(&mut self, request: &Request) {
        if matches!(request, Request::Report) {
            return;
        }
        self.stage = match std::mem::replace(&mut self.stage, Stage::Nothing) {
            Stage::Ready { session, .. } if matches!(request, Request::Step(_)) => Stage::Steps { session },
            Stage::Ready { tuner, .. } => Stage::AskTell { tuner },
            decided => decided,
        };
    }

    /// What is said when the input has ended.
    pub(super) fn end(&self) -> Option<Answer> {
        match &self.stage {
            Stage::Steps { session } => verdict(session),
            Stage::AskTell { tuner } => standing(tuner).map(Answer::Report),
            Stage::Nothing | Stage::Ready { .. } => None,
        }
    }
}

fn step(session: &mut Session, step_ms: f64) -> Action {
    let mut action = session.on_step(step_ms);
    if action == ronde_tuner::Action::Ask {
        // The other side waits for the answer anyway: some milliseconds.
        let proposal = session.proposal_job().run();
        action = session.propose(proposal);
    }
    let space = session.space().clone();
    match action {
        ronde_tuner::Action::Keep | ronde_tuner::Action::Ask | ronde_tuner::Action::Drifted(_) => {
            Action::Keep
        }
        ronde_tuner::Action::Switch(point) => {
            let warnings = session.take_warnings();
            Action::switch(&space, &point, warnings.iter().map(ToString::to_string).collect())
        }
        ronde_tuner::Action::Finished(verdict) => Action::Finished {
            verdict: VerdictLine::new(&space, &verdict),
        },
    }
}

fn verdict(session: &Session) -> Option<Answer> {
    let verdict = session.verdict_if_stopped()?;
    Some(Answer::Verdict(VerdictLine::new(session.space(), &verdict)))
}

fn tell(tuner: &mut Tuner, tell: &Tell) -> Result<Answer, Problem> {
    let point = point(tuner.space(), &tell.setting)?;
    tuner.tell(point, tell.observation())?;
    Ok(Answer::Told {
        settings: tuner.samples().len(),
    })
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
    // Looked at, not taken: the next ask is answered as if nobody had asked.
    Some(standing_of(tuner, &tuner.job().run()))
}

fn standing_of(tuner: &Tuner, proposal: &Proposal) -> Standing {
    let (mean, sd) = proposal.gain;
    let percent = |gain: f64| 100.0 * (1.0 - (-gain).exp());
    Standing {
        setting: setting(tuner.space(), &proposal.incumbent),
        gain_pct: [percent(mean - INTERVAL_95 * sd), percent(mean + INTERVAL_95 * sd)],
        settings: tuner.samples().len(),
        warnings: texts(proposal),
    }
}

fn texts(proposal: &Proposal) -> Vec<String> {
    proposal.warnings.iter().map(ToString::to_string).collect()
}
