//! Ronde's tuner: noise-aware Bayesian optimization for a handful of samples, with a guard that
//! keeps the default unless another setting is shown to be faster.
//!
//! The crate knows no ranks, tensors, clocks or threads: it sees a [`Space`] of parameters, step
//! times, and answers with settings. It promises that the setting in force at the start is measured
//! first and stays a candidate for ever; that what wins is chosen by a noise-aware model and then
//! compared with the default on fresh pairs of visits in random order, or the default stays; that a
//! candidate that turns out slower later is reverted; and that equal seeds and equal step times
//! give equal decisions.
//!
//! | part | what it does |
//! | --- | --- |
//! | [`Session`] | state machine of a job, one call per training step: samples, proposals, comparison, [`Verdict`], checks afterwards |
//! | [`Tuner`] | ask and tell over the lattice of a [`Space`]: Gaussian processes, expected improvement, a stop rule |
//! | [`Model`] | prior belief about the surface; measurements that contradict it reduce its weight |
//! | [`Drift`] | a permanent change of the step time after the verdict |
//! | [`State`] | a small JSON file from which the same job resumes, and which a related job uses as prior knowledge |
//! | [`Posterior`] | posterior of the whole surface and of the noise, from the measurements of a finished search |
//! | [`Log`], [`read_log`], [`read_logs`] | CSV log whose last row is always the best so far; readers of it and of Horovod's log |
//!
//! A session against a training loop; here the step time is a formula:
//!
//! ```
//! use ronde_tuner::{Action, Parameter, Session, SessionConfig, Space};
//!
//! let space = Space::new(vec![
//!     Parameter::log("fusion_threshold_bytes", 65536.0, 268435456.0, 16).with_zero().rough(),
//!     Parameter::log("cycle_time_ms", 0.1, 100.0, 13),
//! ])?;
//! let start = space.point(&[0.0, 25.0])?;
//! let mut session = Session::new(space, SessionConfig::default(), start)?;
//!
//! let mut setting = start;
//! let verdict = loop {
//!     let (fusion, cycle_ms) = (setting.value(0), setting.value(1));
//!     let latency_ms = 30.0 * (2f64.powi(20) / (fusion + 65536.0)).min(4.0);
//!     let mut action = session.on_step(100.0 + latency_ms + cycle_ms);
//!     if action == Action::Ask {
//!         let job = session.proposal_job(); // runs on any thread; training goes on meanwhile
//!         action = session.propose(job.run());
//!     }
//!     match action {
//!         Action::Switch(point) => setting = point,
//!         Action::Finished(verdict) => break verdict,
//!         Action::Keep | Action::Ask | Action::Drifted(_) => {}
//!     }
//! };
//! assert!(!verdict.kept_default && verdict.gain_pct[0] > 30.0);
//! println!("{}: {:?} -> {:.1} ms", verdict.reason, verdict.chosen.values(), verdict.chosen_step_ms);
//! # Ok::<(), ronde_tuner::Error>(())
//! ```

mod acquisition;
mod center;
mod error;
mod guard;
mod log;
mod posterior;
mod random;
mod session;
mod space;
mod state;
mod surrogate;
#[cfg(test)]
mod testing;
mod text;
mod tuner;

pub use center::median;
pub use error::{Error, Warning};
pub use guard::contest_steps_left;
pub use guard::promise::Recheck;
pub use log::{Log, LogContents, LogError, LogRow, read_log, read_logs};
pub use posterior::{Expectation, NoiseEstimate, Posterior};
pub use session::drift::Drift;
pub use session::verdict::{Best, Measurement, Phase, Progress, Purpose, Verdict, percent_text};
pub use session::{Action, Scored, Session, SessionConfig};
pub use space::parameter::{Parameter, Scale};
pub use space::{Point, Space};
pub use state::{
    Match, STATE_MODEL, STATE_VERSION, Setting, State, StateError, StateSample, StateVerdict,
};
pub use text::read_text;
pub use tuner::model::{Belief, Model};
pub use tuner::proposal::{Next, Proposal, ProposalJob, Surface};
pub use tuner::sample::{Observation, Sample, Seen};
pub use tuner::{Tuner, TunerConfig};
