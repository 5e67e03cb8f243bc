//! For any calls, a session neither panics nor proposes a setting outside its space, and keeps its
//! verdict's guarantees.

use proptest::prelude::*;
use ronde_tuner::{
    Action, Match, Parameter, Point, Proposal, ProposalJob, Scored, Session, SessionConfig, Space,
    State,
};

/// One use of a session by its caller.
#[derive(Clone, Debug)]
enum Call {
    /// Report steps of this time, times a factor per setting.
    Steps(f64, u8),
    /// Run the job of an ask, if there was one.
    Run,
    /// Hand in a proposal, the latest or an old one.
    Propose(bool),
    /// Ask without being told to.
    AskUnasked,
    Retune,
    Report,
    /// Write the state and go on with a session that resumes from it.
    Restart(bool),
}

fn step_ms() -> impl Strategy<Value = f64> {
    prop_oneof![
        6 => 1.0..1000.0f64,
        1 => prop::sample::select(vec![
            f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, -1.0, f64::MAX, f64::MIN_POSITIVE, 5e-324, 1e300, 1e-300,
        ]),
        1 => any::<f64>(),
    ]
}

fn call() -> impl Strategy<Value = Call> {
    prop_oneof![
        8 => (step_ms(), 1u8..40).prop_map(|(ms, steps)| Call::Steps(ms, steps)),
        3 => Just(Call::Run),
        3 => any::<bool>().prop_map(Call::Propose),
        1 => Just(Call::AskUnasked),
        1 => Just(Call::Retune),
        1 => Just(Call::Report),
        1 => any::<bool>().prop_map(Call::Restart),
    ]
}

fn config() -> impl Strategy<Value = SessionConfig> {
    (
        any::<bool>(),
        1u32..12,
        1u32..30,
        0.0..60.0f64,
        prop::option::of(0u32..3),
    )
        .prop_map(
            |(adaptive, steps_per_sample, max_samples, budget_steps, warmup_samples)| {
                SessionConfig {
                    adaptive,
                    steps_per_sample,
                    max_samples,
                    budget_steps,
                    warmup_samples,
                    ..SessionConfig::default()
                }
            },
        )
}

fn space(fixed: bool) -> Space {
    let cycle = Parameter::log("cycle_ms", 0.1, 100.0, 5);
    let cycle = if fixed { cycle.fixed(1.0) } else { cycle };
    Space::new(vec![
        cycle,
        Parameter::boolean("hierarchical").fixed(0.0),
        if fixed {
            Parameter::boolean("b").fixed(0.0)
        } else {
            Parameter::boolean("b")
        },
    ])
    .unwrap()
}

struct Caller {
    session: Session,
    default: Point,
    job: Option<ProposalJob>,
    proposals: Vec<Proposal>,
    factors: [f64; 3],
}

impl Caller {
    fn check(&mut self, action: Action) {
        let setting = self.session.setting();
        assert!(self.session.space().point(setting.values()).is_ok());
        match action {
            Action::Keep => {}
            Action::Ask => self.job = Some(self.session.proposal_job()),
            Action::Switch(point) => assert_eq!(point, setting),
            Action::Drifted(drift) => assert!(drift.before_ms != drift.after_ms),
            Action::Finished(verdict) => {
                assert_eq!(verdict.chosen, setting);
                assert!(
                    !verdict.reason.is_empty()
                        && !verdict.steps_lost.is_nan()
                        && verdict.steps_lost >= 0.0
                );
            }
        }
    }

    fn apply(&mut self, call: &Call) {
        match call {
            Call::Steps(ms, steps) => {
                for step in 0..*steps {
                    let setting = self.session.setting();
                    let factor = self.factors
                        [setting.values().iter().map(|v| *v as usize).sum::<usize>() % 3];
                    let jitter = 1.0 + 0.01 * f64::from(step % 5);
                    let action = self.session.on_step(ms * factor * jitter);
                    self.check(action);
                }
            }
            Call::Run => self.proposals.extend(self.job.take().map(ProposalJob::run)),
            Call::Propose(latest) => {
                let proposal = if *latest {
                    self.proposals.last()
                } else {
                    self.proposals.first()
                };
                if let Some(proposal) = proposal.cloned() {
                    let action = self.session.propose(proposal);
                    self.check(action);
                }
            }
            Call::AskUnasked => self.proposals.push(self.session.proposal_job().run()),
            Call::Retune => {
                let action = self.session.retune("a caller's whim");
                self.check(action);
            }
            Call::Report => {
                let _ = (
                    self.session.progress(),
                    self.session.verdict_if_stopped(),
                    self.session.best_so_far(),
                );
                assert!(
                    self.session.take_measurements().len() <= 256
                        && self.session.take_warnings().len() <= 256
                );
            }
            Call::Restart(same) => {
                let text = self
                    .session
                    .state([("model".into(), "m".into())].into(), "today")
                    .to_json();
                let matching = if *same { Match::Same } else { Match::Sibling };
                // Times beyond all reason do not survive the file; that is an error then, and no
                // more.
                if let Ok(state) = State::from_json(&text) {
                    let space = self.session.space().clone();
                    let session = Session::new(space, SessionConfig::default(), self.default);
                    self.session = session.unwrap().resume(&state, matching);
                    self.job = None;
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn no_caller_makes_a_session_panic(
        config in config(),
        fixed in prop::bool::weighted(0.1),
        calls in prop::collection::vec(call(), 1..60),
        factors in (0.5..3.0f64, 0.5..3.0f64, prop_oneof![0.5..3.0f64, 100.0..200.0f64]),
        history in prop::collection::vec((0usize..9, -1.0..200.0f64, step_ms()), 0..6),
    ) {
        let space = space(fixed);
        let default = space.point(&[1.0, 0.0, 0.0]).unwrap();
        let history: Vec<Scored> = history
            .into_iter()
            .map(|(row, cycle, score)| Scored { row, values: vec![cycle, 0.0, 0.0], score })
            .collect();
        let session = Session::new(space, config, default).unwrap().with_history(&history);
        let mut caller = Caller { session, default, job: None, proposals: Vec::new(), factors: factors.into() };
        for call in &calls {
            caller.apply(call);
        }
    }
}
