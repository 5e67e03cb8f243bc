//! Fuzz target: reads the input as an autotune log, and reviews it.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ronde_fuzz::run("autotune", data));
