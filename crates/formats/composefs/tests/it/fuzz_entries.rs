//! The entry points of the fuzz targets, over their seeds and some thousand mutations that are the same each
//! time: so that it runs without a nightly compiler.

use forerun_composefs::fuzzing;
use forerun_testkit::mutate::{each, is_located};

const ROUNDS: usize = 400;

#[test]
fn seeds_are_sound() {
    for (name, seed) in fuzzing::seeds().unwrap() {
        for error in fuzzing::walk(&seed) {
            // Files whose digest is not known, and bytes that are not those of the digest.
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
    // Or the mutations have become too tame.
    assert!(kinds.contains("corrupt"), "{kinds:?}");
}
