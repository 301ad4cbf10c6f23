//! Some operations on an image: the first byte says how many bytes of them follow, and the rest is the
//! image.
#![no_main]

use forerun_exfat::fuzzing;
use forerun_fuzz::in_time;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| in_time(|| run(bytes)));

fn run(bytes: &[u8]) {
    let Some((&count, rest)) = bytes.split_first() else {
        return;
    };
    if let Some((operations, image)) = rest.split_at_checked(usize::from(count)) {
        fuzzing::operations(operations, image);
    }
}
