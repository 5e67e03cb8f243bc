//! Projection of costs to networks and numbers of ranks that were not measured.
//!
//! The cost of a collective is counted in hops and bytes ([`terms`]): α for each hop, β for each
//! byte that passes a link. A measurement on some ranks gives α and β of the link ([`Measured`]).
//! Counting again for other ranks, or with the values of another network ([`Network`]), gives the
//! cost of the collective there ([`Target::project`]). This is the α–β model: no congestion, no
//! topology beyond hosts, no change of algorithm by message size. So predictions have an
//! uncertainty that grows with the distance from the measurement, and every assumption is stated in
//! words.

mod formula;
mod order;
mod preset;
mod project;

pub use formula::{Algorithm, Terms, Topology, terms};
pub use order::expected_maximum;
pub use preset::{Link, Network, NetworkError};
pub use project::{Measured, ProjectError, Projected, Target, Widening};
