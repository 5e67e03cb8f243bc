//! Fuzz target: reads the input as BytePS's `comm.json`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ronde_fuzz::run("byteps", data));
