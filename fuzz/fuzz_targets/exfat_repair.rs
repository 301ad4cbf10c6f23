//! Repair of any bytes: it comes to an end, and what it calls whole is.
#![no_main]

use forerun_exfat::fuzzing::mend;
use forerun_fuzz::in_time;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| in_time(|| run(bytes)));

fn run(bytes: &[u8]) {
    let (answers, image) = bytes.split_first_chunk::<8>().unwrap_or((&[0; 8], bytes));
    let errors = mend(image, u64::from_le_bytes(*answers));
    assert!(errors.is_empty(), "{errors:?}");
}
