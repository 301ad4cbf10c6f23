//! Any bytes as a file header.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| forerun_romfs::fuzzing::header(bytes));
