//! Any bytes as a registry's manifest, index or configuration of an image. The same code runs over
//! mutated seeds in a plain test of the crate, without a nightly compiler.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    forerun_remote::registry::fuzzing::documents(bytes);
});
