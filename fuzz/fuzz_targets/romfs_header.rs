//! Any bytes as a file header.
#![no_main]

use forerun_fuzz::in_time;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| in_time(|| forerun_romfs::fuzzing::header(bytes)));
