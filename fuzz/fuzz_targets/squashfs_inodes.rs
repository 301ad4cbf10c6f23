//! Any bytes as inodes. The same code runs over mutated seeds in a plain test of the
//! driver, without a nightly compiler.
#![no_main]

use forerun_fuzz::in_time;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| in_time(|| forerun_squashfs::fuzzing::inodes(bytes)));
