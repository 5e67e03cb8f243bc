//! Tuning of any command: which settings it has, how a run is measured, and which run is next.
//!
//! | part | content |
//! | --- | --- |
//! | [`Parameter`] | a name with its values, from a text such as `bucket=1..256,log,start=25` |
//! | [`Template`] | the command, its variables and files, in which `{name}` stands for a value |
//! | [`Metric`] | the figure of a run: from its output, a JSON file, or its wall time |
//! | [`Runner`] | runs the command once: [`Processes`], or a simulation |
//! | [`Plan`] | the next run after those so far, and the verdict on all of them |
//! | [`State`] | the file with which an interrupted search continues |
//! | [`mod@preset`] | settings of well-known programs |
//! | [`Service`] | the tuner as a service for a program that measures itself |
//!
//! The next run depends on the plan and on the runs so far, and on nothing else. So an interrupted
//! search continues as if it had not been interrupted, and a simulated command takes the same path
//! as a real one.

mod comparison;
mod experiment;
mod limit;
mod metric;
mod parameter;
mod plan;
pub mod preset;
mod process;
mod run;
mod service;
mod state;
mod statistics;
mod template;

pub use comparison::{Comparison, Decision};
pub use experiment::{End, Event, search};
pub use limit::Limit;
pub use metric::{Metric, MetricError, Pattern, Use};
pub use parameter::{Order, Parameter, ParameterError, Setting};
pub use plan::{Plan, PlanError, Reason, Task, Verdict};
pub use process::{Processes, RunError, Watch};
pub use run::{Outcome, Phase, Row, Runner, by_setting, seconds};
pub use service::{Problem, Service};
pub use state::{Identity, State, StateError, StateLock};
pub use statistics::{geometric_mean, scatter};
pub use template::{Config, Filled, Template, TemplateError};
