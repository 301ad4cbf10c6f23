//! Tests of the functions that the fuzz targets call, over fixed seeds and mutations.

use forerun_remote::fuzzing;
use forerun_testkit::mutate::each;

#[test]
fn documents() {
    assert_eq!(fuzzing::documents(&fuzzing::manifest()), 2);
    assert_eq!(fuzzing::documents(&fuzzing::config()), 1);
    for seed in [fuzzing::manifest(), fuzzing::config()] {
        each(&seed, 4000, |bytes| {
            fuzzing::documents(bytes);
        });
    }
}

/// Replaces every byte of both documents by bytes with a meaning in JSON.
#[test]
fn documents_one_byte_off() {
    for seed in [fuzzing::manifest(), fuzzing::config()] {
        for at in 0..seed.len() {
            for byte in [b'0', b'9', b'-', b'"', b'}', b'[', 0, 0xff, seed[at] ^ 1] {
                let mut bytes = seed.clone();
                bytes[at] = byte;
                fuzzing::documents(&bytes);
            }
        }
    }
}

#[test]
fn texts() {
    for seed in fuzzing::TEXTS {
        each(seed.as_bytes(), 4000, fuzzing::texts);
    }
}

#[test]
fn facts() {
    for seed in fuzzing::facts() {
        assert!(fuzzing::remembered(&seed));
        each(&seed, 4000, |bytes| {
            let _sound = fuzzing::remembered(bytes);
        });
    }
}
