//! Helpers of the integration tests: jobs of real processes, the program under test, its output,
//! and fixtures.

#![allow(dead_code, unused_imports)] // each group of tests uses a part of it

pub(crate) mod fake_cuda;
pub(crate) mod fixture;
pub(crate) mod holdings;
mod hosts;
pub(crate) mod output;
mod processes;
pub(crate) mod program;

pub(crate) use hosts::has_hosts;
pub(crate) use processes::*;
