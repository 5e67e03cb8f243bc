//! Networks and numbers of ranks that were not measured.
//!
//! What a collective takes is counted in hops and in bytes ([`terms`]): α for each hop, β for each byte that passes a link.
//! What was measured on some ranks gives the link ([`Measured`]); counted again for other ranks, or with the numbers of
//! another network ([`Network`]), it gives what a collective takes there ([`Target::project`]). All of it is the α–β model:
//! no congestion, no topology beyond hosts, no switch of algorithm by message size. So predictions carry an uncertainty that
//! grows with the distance from what was measured, and every assumption is said in words.

mod formula;
mod order;
mod preset;
mod project;

pub use formula::{Algorithm, Terms, Topology, terms};
pub use order::expected_maximum;
pub use preset::{Link, Network, NetworkError};
pub use project::{Measured, ProjectError, Projected, Target, Widening};
