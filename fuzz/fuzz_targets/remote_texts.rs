//! Any bytes as a name in a registry, a challenge, a redirect and a file of credentials. The same code
//! runs over mutated seeds in a plain test of the crate, without a nightly compiler.
#![no_main]

use forerun_fuzz::in_time;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| in_time(|| forerun_remote::registry::fuzzing::texts(bytes)));
