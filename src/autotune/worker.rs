//! Thread of low priority that computes the proposals, so that no cycle waits for a Gaussian
//! process.
//!
//! It fits the replay to the traced steps, and the ensemble of replays around the fit becomes the
//! search's prior. If the fit fails or is uncertain, the search has no prior; the job is not
//! affected.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

use ronde_tuner::{Belief, Model, Point, Proposal, ProposalJob};
use rustix::time::{ClockId, clock_gettime};

use super::news::Surface;
use super::space;
use super::trace::Seen;
use crate::percentile::percentile_of;
use crate::replay::{Ensemble, JobTopology, Rules, fit};
use crate::settings::Settings;

/// Lowest priority that still gets CPU time. Without optimization a proposal takes twenty times as
/// long: if every core is busy, as in parallel tests, it would then take minutes, even with a
/// slightly lower priority than others.
const NICE: i32 = if cfg!(debug_assertions) { 0 } else { 19 };

/// Evidence for a proposal, besides the measurements.
pub(super) struct Evidence {
    pub(super) seen: Seen,
    /// Settings with which the others are compared.
    pub(super) reference: Settings,
    pub(super) rules: Rules,
    pub(super) place: JobTopology,
    pub(super) seed: u64,
}

/// A proposal and its cost.
pub(super) struct Answer {
    pub(super) proposal: Proposal,
    pub(super) spent: Spent,
    /// If the job asks for it.
    pub(super) surface: Surface,
}

/// Cost of a proposal, in ms of the thread's CPU time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spent {
    /// Fit of the traces.
    pub(super) fit_ms: f64,
    /// Runs of the replays.
    pub(super) ensemble_ms: f64,
    /// Total, including these.
    pub(super) all_ms: f64,
    /// Step time at the start, fitted and measured, µs.
    pub(super) modelled: Option<(f64, f64)>,
}

/// A proposal that is being computed.
pub(super) struct Asked {
    answer: Receiver<Answer>,
    /// Step time of the setting before, ms, and times of the steps meanwhile.
    before_ms: Option<f64>,
    meanwhile_ms: Vec<f64>,
}

/// State of the computation.
pub(super) enum Outcome {
    Pending,
    Done(Box<Answer>),
    /// The thread ended without an answer.
    Lost,
}

impl Spent {
    /// Formats the cost for the log; `slowdown_pct` is the slow-down of the steps meanwhile.
    pub(super) fn text(&self, slowdown_pct: Option<f64>) -> String {
        let Self {
            fit_ms,
            ensemble_ms,
            all_ms,
            modelled,
        } = self;
        let mut text = format!(
            "a proposal took {all_ms:.1} ms of CPU time, {fit_ms:.1} of it for the fit, {ensemble_ms:.1} for replays"
        );
        if let Some(percent) = slowdown_pct {
            text += &format!("; steps meanwhile took {percent:+.1} %");
        }
        if let Some((modelled_us, measured_us)) = modelled {
            let (modelled_ms, measured_ms) = (modelled_us / 1e3, measured_us / 1e3);
            text += &format!(
                "; replay predicts {modelled_ms:.3} ms, measured were {measured_ms:.3} ms"
            );
        }
        text
    }
}

impl Asked {
    /// Runs `job` with the model from `evidence`, if there is any. `before_ms`: the step time until
    /// now.
    ///
    /// # Errors
    /// No thread can be started.
    pub(super) fn new(
        job: ProposalJob,
        evidence: Option<Evidence>,
        before_ms: Option<f64>,
    ) -> std::io::Result<Self> {
        let (sender, answer) = channel();
        let thread = std::thread::Builder::new().name("ronde-tuner".into());
        thread.spawn(move || work(job, evidence, &sender))?;
        Ok(Self {
            answer,
            before_ms,
            meanwhile_ms: Vec::new(),
        })
    }

    pub(super) fn outcome(&self) -> Outcome {
        match self.answer.try_recv() {
            Ok(answer) => Outcome::Done(Box::new(answer)),
            Err(TryRecvError::Empty) => Outcome::Pending,
            Err(TryRecvError::Disconnected) => Outcome::Lost,
        }
    }

    /// Adds a step that was taken meanwhile.
    pub(super) fn step(&mut self, step_ms: f64) {
        const STEPS_MAX: usize = 100; // enough for a median
        if self.meanwhile_ms.len() < STEPS_MAX {
            self.meanwhile_ms.push(step_ms);
        }
    }

    /// Percentage by which the median step meanwhile was longer than before.
    pub(super) fn slowdown_pct(&self) -> Option<f64> {
        let median = percentile_of(self.meanwhile_ms.clone(), 0.5)?;
        Some(100.0 * (median / self.before_ms? - 1.0))
    }
}

fn work(job: ProposalJob, evidence: Option<Evidence>, answer: &Sender<Answer>) {
    // Fails if priorities cannot be lowered: the thread then competes with the others.
    let _ = rustix::process::nice(NICE);
    let mut spent = Spent::default();
    let ensemble = evidence.and_then(|evidence| prior(evidence, &mut spent));
    spent.fit_ms = cpu_ms();
    let proposal = match ensemble {
        None => job.run(),
        Some(ensemble) => {
            let model = Arc::new(Timed {
                ensemble,
                took_ns: AtomicU64::new(0),
            });
            let proposal = job.with_model(Arc::clone(&model) as Arc<dyn Model>).run();
            spent.ensemble_ms = model.took_ns.load(Ordering::Relaxed) as f64 / 1e6;
            proposal
        }
    };
    spent.all_ms = cpu_ms();
    // The session may have ended when the proposal arrives; the answer is then dropped.
    let _ = answer.send(Answer {
        surface: Surface::of(&proposal),
        proposal,
        spent,
    });
}

/// Returns the ensemble around the fit of the traces; `None` if the fit is too uncertain.
fn prior(evidence: Evidence, spent: &mut Spent) -> Option<Ensemble> {
    let Evidence {
        seen,
        reference,
        rules,
        place,
        seed,
    } = evidence;
    let fitted = catch_unwind(AssertUnwindSafe(|| {
        fit(&seen.told(&reference), rules, place)
    }));
    match fitted {
        Ok(Some(fit)) => {
            spent.modelled = Some((fit.modelled_us, fit.measured_us));
            Some(Ensemble::new(fit, seed))
        }
        Ok(None) => {
            tracing::info!("autotune: no model fits the recorded steps; searching without one");
            None
        }
        Err(_) => {
            tracing::warn!("autotune: fitting a model to the steps failed; searching without one");
            None
        }
    }
}

/// Ensemble that measures its CPU time; a failure gives no belief and a warning.
#[derive(Debug)]
struct Timed {
    ensemble: Ensemble,
    took_ns: AtomicU64,
}

impl Model for Timed {
    fn belief(&self, points: &[Point], reference: &Point) -> Option<Belief> {
        let began = cpu_ms();
        let belief = catch_unwind(AssertUnwindSafe(|| {
            belief(&self.ensemble, points, reference)
        }));
        let took_ns = ((cpu_ms() - began) * 1e6) as u64;
        self.took_ns.fetch_add(took_ns, Ordering::Relaxed);
        belief.unwrap_or_else(|_| {
            tracing::warn!("autotune: replaying the steps failed; searching without predictions");
            None
        })
    }
}

/// Returns the expectation of `ensemble` at `points` of the tuner's space.
fn belief(ensemble: &Ensemble, points: &[Point], reference: &Point) -> Option<Belief> {
    let settings: Vec<_> = points.iter().map(space::setting).collect();
    let expected = ensemble.slowdowns(&settings, &space::setting(reference))?;
    Some(Belief {
        mean: expected.mean,
        features: expected.features,
    })
}

/// CPU time of this thread, ms.
fn cpu_ms() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
}
