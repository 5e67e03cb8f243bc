//! Fuzz target: reads the input as a timeline of Horovod or Ronde.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ronde_fuzz::run("horovod", data));
