//! Jobs started by `ronde run`, `mpirun` and other launchers.

mod mpirun;
mod run;
#[path = "../support/mod.rs"]
mod support;
