//! Replay: what a step would take under other settings, other networks, other numbers of ranks.
//!
//! A [`Trace`] holds what a job was seen to do under one setting: when tensors were ready, what cycles and batches cost. The
//! [`fit`](fn@fit) of some traces gives a [`Workload`] (what a step consists of, whatever the settings) and [`Costs`] (what its parts
//! take), with how sure each number is. The [`Simulator`] runs a step of the workload through the runtime's own planner
//! ([`crate::fusion`]) under any [`Setting`]; an [`Ensemble`] of costs drawn around the fit is the tuner's prior.

mod costs;
mod ensemble;
mod fit;
mod forecast;
mod linear;
pub mod network;
mod place;
pub mod profile;
mod simulate;
mod trace;
mod workload;

pub use costs::{Collective, Copying, Costs, Negotiation};
pub use ensemble::{Ensemble, MeasuredSetting, Slowdowns};
pub use fit::{Fit, Spread, fit};
pub use forecast::{Forecast, Prediction, Ratio};
pub use linear::Linear;
pub use place::{Hosts, JobTopology};
pub use simulate::{Rules, Simulator};
pub use trace::{Trace, TracedBatch, TracedCycle, TracedStep, TracedTensor};
pub use workload::{Operation, Setting, WorkTensor, Workload};
