//! Fuzz target: reads the input as a profile and predicts from it.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ronde_fuzz::run("profile", data));
