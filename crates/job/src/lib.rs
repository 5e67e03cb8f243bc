//! Model of a data-parallel job, without access to the operating system: element types, operations,
//! settings, fusion planner, step detection, a cost model and the simulator that replays a job
//! under other settings.
//!
//! The runtime, the readers of timelines and the experiments share these definitions, so a
//! prediction plans batches exactly as a running job does.
//!
//! - [`Dtype`], [`ReduceOp`], [`OpKind`]: element types, reductions and collective operations.
//! - [`settings`]: the settings that may change while a job runs. [`fusion`]: assigns ready tensors
//!   to batches.
//! - [`point`]: combinations of settings that sweeps and replays compare.
//! - [`step`]: detection of training steps, the repeating sequence of tensors.
//! - [`hold`]: times at which waiting for tensors is shorter than another batch.
//! - [`gate`]: conditions that data must meet before a setting is recommended.
//! - [`replay`]: costs fitted to recorded steps, the simulator, other networks, the profile format.
//!
//! ```
//! use ronde_job::fusion::{Item, Plan};
//!
//! let item = |bytes| Item { class: 0, bytes, group: None };
//! let mut plan = Plan::default();
//! plan.make(&[item(600), item(300), item(200)], 1000);
//! let batches: Vec<&[u32]> = plan.batches().collect();
//! assert_eq!(batches, [&[0, 1][..], &[2]]);
//! ```

mod dtype;
pub mod fusion;
pub mod fusion_class;
pub mod gate;
pub mod hold;
mod operation;
pub mod percentile;
pub mod point;
pub mod replay;
pub mod settings;
pub mod step;
pub mod units;

pub use dtype::{Dtype, ReduceOp};
pub use operation::{ATTACHED_ALLREDUCE, OpKind};
