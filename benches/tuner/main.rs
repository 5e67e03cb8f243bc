//! Evaluates tuners on jobs whose truth is known.

#[allow(dead_code)]
mod harness;

fn main() {}
