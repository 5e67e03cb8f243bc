//! Fuzz target: reads the input as a trace of PyTorch's profiler.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ronde_fuzz::run("kineto", data));
