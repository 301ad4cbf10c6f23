//! The entry points of the fuzz targets, over their seeds and mutations that are the same each time.

use std::collections::BTreeSet;

use forerun_cramfs::fuzzing;
use forerun_testkit::mutate::{each, is_located};
use forerun_vfs::Error;

const ROUNDS: usize = 400;

fn all_located(errors: &[Error]) {
    for error in errors {
        assert!(is_located(error), "{error}");
    }
}

#[test]
fn seeds_are_sound() {
    for (name, seed) in fuzzing::seeds() {
        let errors = fuzzing::walk(&seed);
        assert!(errors.is_empty(), "{name}: {errors:?}");
    }
    let errors = fuzzing::blocks(&fuzzing::pointers());
    assert!(errors.is_empty(), "{errors:?}");
}

#[test]
fn cramfs_superblock() {
    for (_, seed) in fuzzing::seeds() {
        let len = seed.len().min(588);
        each(&seed[..len], ROUNDS * 4, fuzzing::superblock);
    }
}

#[test]
fn cramfs_directory() {
    each(&fuzzing::entries(), ROUNDS * 4, |bytes| {
        all_located(&fuzzing::directory(bytes));
    });
}

#[test]
fn cramfs_blocks() {
    each(&fuzzing::pointers(), ROUNDS * 4, |bytes| {
        all_located(&fuzzing::blocks(bytes));
    });
}

#[test]
fn cramfs_walk() {
    let mut kinds = BTreeSet::new();
    for (name, seed) in fuzzing::seeds() {
        each(&seed, ROUNDS, |bytes| {
            for error in fuzzing::walk(bytes) {
                kinds.insert(error.kind());
                assert!(is_located(&error), "{name}: {error}");
            }
        });
    }
    // Otherwise the mutations have become too tame.
    for kind in ["corrupt", "directory_loop", "unsupported"] {
        assert!(kinds.contains(kind), "{kinds:?}");
    }
}
