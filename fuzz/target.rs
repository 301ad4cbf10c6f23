//! The program of every target. It has the target's name in `forerun_fuzzing::TARGETS`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| forerun_fuzzing::run(env!("CARGO_BIN_NAME"), bytes));
