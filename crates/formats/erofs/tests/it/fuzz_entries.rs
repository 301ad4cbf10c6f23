//! The entry points of the fuzz targets, over their seeds and some thousand mutations that are the
//! same each time. They need no nightly compiler.

use forerun_erofs::fuzzing;
use forerun_testkit::mutate::{each, is_located};

use crate::golden;

const ROUNDS: usize = 400;

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let mut seeds = fuzzing::seeds().unwrap();
    for (name, image) in golden::images() {
        seeds.push((name, golden::without_checksum(&image)));
    }
    seeds
}

#[test]
fn seeds_are_sound() {
    for (name, seed) in seeds() {
        let errors = fuzzing::walk(&seed);
        assert!(errors.is_empty(), "{name}: {errors:?}");
    }
}

#[test]
fn erofs_superblock() {
    for (_, seed) in seeds() {
        each(&seed[1024..1168], ROUNDS, fuzzing::superblock);
    }
}

#[test]
fn erofs_inodes() {
    let seed = fuzzing::image();
    each(&seed[fuzzing::PIECES.0], ROUNDS * 4, fuzzing::inodes);
}

#[test]
fn erofs_directories() {
    let seed = fuzzing::image();
    each(&seed[fuzzing::PIECES.1], ROUNDS * 4, fuzzing::directories);
}

#[test]
fn erofs_xattrs() {
    let seed = fuzzing::image();
    each(&seed[fuzzing::PIECES.2], ROUNDS * 4, fuzzing::xattrs);
}

#[test]
fn erofs_walk() {
    let mut kinds = std::collections::BTreeSet::new();
    for (name, seed) in seeds() {
        each(&seed, ROUNDS, |bytes| {
            for error in fuzzing::walk(bytes) {
                kinds.insert(error.kind());
                assert!(is_located(&error), "{name}: {error}");
            }
        });
    }
    // Otherwise the mutations have become too tame.
    for kind in ["corrupt", "unsupported"] {
        assert!(kinds.contains(kind), "{kinds:?}");
    }
}
