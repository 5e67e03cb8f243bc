//! Fuzz target: reads the input in whatever format is detected.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ronde_fuzz::run("read", data));
