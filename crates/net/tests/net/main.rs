//! Tests of meshes among the ranks of one process, and among processes.

mod lost;
mod messages;
mod open_files;
mod rendezvous;
mod support;
