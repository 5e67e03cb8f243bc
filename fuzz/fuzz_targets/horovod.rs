//! Reads the input as a timeline of Horovod's or Ronde's.
#![no_main]

#[path = "../src/targets.rs"]
#[allow(dead_code)]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::horovod(data));
