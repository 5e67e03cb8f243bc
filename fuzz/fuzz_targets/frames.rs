//! Fuzz target: reads the input as the frames of a connection over TCP.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ronde_fuzz::run("frames", data));
