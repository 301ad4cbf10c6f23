//! The entry points of the fuzz targets, over their seeds and some thousand mutations that are the
//! same each time. They need no nightly compiler.

use forerun_squashfs::fuzzing::{self, Parts};
use forerun_testkit::mutate::{each, is_located};

const ROUNDS: usize = 400;

#[test]
fn seeds_are_sound() {
    for (name, seed) in fuzzing::seeds().unwrap() {
        let errors = fuzzing::walk(&seed);
        assert!(errors.is_empty(), "{name}: {errors:?}");
    }
}

#[test]
fn squashfs_superblock() {
    for (_, seed) in fuzzing::seeds().unwrap() {
        each(&seed[..119], ROUNDS * 4, fuzzing::superblock);
    }
}

#[test]
fn squashfs_inodes() {
    each(&Parts::everything().inodes, ROUNDS, fuzzing::inodes);
}

#[test]
fn squashfs_directories() {
    each(
        &Parts::everything().listings,
        ROUNDS * 4,
        fuzzing::directories,
    );
}

#[test]
fn squashfs_xattrs() {
    let parts = Parts::everything();
    let seed = [&parts.sets[..], &parts.pairs].concat();
    each(&seed, ROUNDS * 4, fuzzing::xattrs);
}

#[test]
fn squashfs_walk() {
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
    for kind in ["corrupt", "directory_loop", "unsupported"] {
        assert!(kinds.contains(kind), "{kinds:?}");
    }
}

#[test]
fn squashfs_salvage() {
    for (_, seed) in fuzzing::seeds().unwrap() {
        each(&seed, ROUNDS / 4, fuzzing::salvage);
    }
}
