//! Any bytes as a registry's manifest, index or configuration of an image, and as what the cache
//! remembers of one. The same code runs over
//! mutated seeds in a plain test of the crate, without a nightly compiler.
#![no_main]

use forerun_fuzz::in_time;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| in_time(|| run(bytes)));

fn run(bytes: &[u8]) {
    forerun_remote::registry::fuzzing::documents(bytes);
    let _sound = forerun_remote::registry::fuzzing::remembered(bytes);
}
