//! Replay: predicts the duration of a step under other settings, networks and numbers of ranks.
//!
//! A [`Trace`] holds the recorded steps of a job under one setting: ready times of tensors, and
//! durations of cycles and batches. The [`fit`](fn@fit) of one or several traces gives a
//! [`Workload`] (tensors of a step, independent of the settings) and [`Costs`] (durations of its
//! parts), with the uncertainty of each number. The [`Simulator`] runs a step of the workload with
//! the runtime's own planner ([`crate::fusion`]) under any [`Setting`]; an [`Ensemble`] of costs
//! drawn around the fit is the tuner's prior.

mod costs;
mod ensemble;
mod fit;
mod forecast;
mod linear;
pub mod network;
mod place;
pub mod profile;
mod range;
mod simulate;
mod trace;
mod workload;

pub use costs::{Collective, Copying, Costs, Negotiation};
pub use ensemble::{Ensemble, Slowdowns};
pub use fit::{Fit, Spread, fit};
pub use forecast::{Forecast, Prediction, Ratio};
pub use linear::Linear;
pub use place::{Hosts, JobTopology};
pub use range::Messages;
pub use simulate::{Rules, Simulator};
pub use trace::{Trace, TracedBatch, TracedCycle, TracedStep, TracedTensor};
pub use workload::{Operation, Setting, WorkTensor, Workload};
