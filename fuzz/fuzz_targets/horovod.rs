//! Reads the input as a timeline of Horovod's or Ronde's.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ronde_fuzz::run("horovod", data));
