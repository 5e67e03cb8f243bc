//! Membership of an elastic job: which processes run, and which of them are its ranks.
//!
//! The launcher owns one [`Membership`]. It reports events (hosts, exits, processes that are ready)
//! and carries out the [`Action`]s that it gets in return. There is no clock, process or socket
//! here: times are arguments, so that tests run thousands of schedules. [`wire`] has the messages
//! between the launcher and the processes.
//!
//! # Generations
//! A job is a sequence of generations: sets of processes with fixed ranks. A process that has
//! begun, or that leaves a generation, is *ready* when it asks for its place in the next one. The
//! places of a generation are decided once, from the processes that are ready, and do not change.
//! If a member of a generation ends before the others have finished, the generation is over: all
//! its members are told, and become ready again.
//!
//! # Guarantees
//! - All members of a generation get the same number of ranks, and ranks 0, 1, … exactly once.
//! - Rank 0, whose state the others copy, is a member of the previous generation while one is left;
//!   it is the same process while its host is used.
//! - Processes that are new never delay a generation that forms after a failure: they join the next
//!   one.

mod action;
mod health;
mod host;
mod hosts;
mod membership;
mod place;
mod seats;
pub mod wire;

pub use action::{Action, Exit, Limits, MemberId, Outcome, Ready, Seat};
pub use health::{Cooldown, CooldownError};
pub use host::{HostError, check_host, parse_host, parse_slots};
pub use hosts::{Hosts, HostsError};
pub use membership::Membership;
pub use place::Place;
