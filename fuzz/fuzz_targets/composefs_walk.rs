//! Any bytes as an image: first all that the driver can do with it, then the way of a user - open,
//! walk, read every file through the engine.
#![no_main]

use forerun_composefs::fuzzing;
use forerun_fuzz::in_time;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| in_time(|| run(bytes)));

fn run(bytes: &[u8]) {
    let _errors = fuzzing::walk(bytes);
    forerun_fuzz::read_all("composefs", bytes, fuzzing::limits());
}
