//! The entry points of the fuzz targets, over their seeds and some thousand mutations that are the
//! same each time. They need no nightly compiler.

use forerun_composefs::fuzzing;
use forerun_testkit::mutate::{each, is_located};

const ROUNDS: usize = 400;

#[test]
fn seeds_are_sound() {
    for (name, seed) in fuzzing::seeds().unwrap() {
        for error in fuzzing::walk(&seed) {
            // Files of unknown digest, and bytes that do not match their digest.
            let told = error.to_string();
            let expected = told.contains("no digest") || told.contains("5a/5a5a");
            assert!(expected, "{name}: {error}");
        }
    }
}

#[test]
fn composefs_attributes() {
    for (_, seed) in fuzzing::attribute_seeds() {
        each(&seed, ROUNDS * 20, fuzzing::attributes);
    }
}

#[test]
fn composefs_walk() {
    let mut kinds = std::collections::BTreeSet::new();
    for (name, seed) in fuzzing::seeds().unwrap() {
        each(&seed, ROUNDS, |bytes| {
            for error in fuzzing::walk(bytes) {
                kinds.insert(error.kind());
                assert!(is_located(&error), "{name}: {error}");
            }
        });
    }
    // Otherwise the mutations have become too tame.
    assert!(kinds.contains("corrupt"), "{kinds:?}");
}
