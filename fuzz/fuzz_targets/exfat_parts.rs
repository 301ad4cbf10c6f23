//! Any bytes as an entry set and as an up-case table.
#![no_main]

use forerun_exfat::fuzzing;
use forerun_fuzz::in_time;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| in_time(|| fuzzing::parts(bytes)));
