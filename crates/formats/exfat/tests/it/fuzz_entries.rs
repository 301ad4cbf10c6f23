//! The functions of the fuzz targets, run over their seed and some thousand mutations that are the same
//! each time. These tests need no nightly compiler.

use forerun_exfat::fuzzing;
use forerun_testkit::mutate::{each, in_time, is_located};
use forerun_testkit::rng::Rng;

#[test]
fn the_seed_is_sound() {
    let errors = fuzzing::walk(&fuzzing::image());
    assert!(errors.is_empty(), "{errors:?}");
}

#[test]
fn exfat_walk() {
    let mut kinds = std::collections::BTreeSet::new();
    each(&fuzzing::image(), 3000, |bytes| {
        for error in fuzzing::walk(bytes) {
            kinds.insert(error.kind());
            assert!(is_located(&error), "{error}");
        }
    });
    assert!(kinds.len() > 1, "{kinds:?}");
}

#[test]
fn exfat_directories() {
    let image = fuzzing::image();
    let root = fuzzing::cluster(fuzzing::ROOT);
    each(&image[root..root + 1024], 6000, |bytes| {
        let mut image = image.clone();
        let len = bytes.len().min(1024);
        image[root..root + len].copy_from_slice(&bytes[..len]);
        fuzzing::walk(&image);
    });
}

#[test]
fn exfat_parts() {
    let image = fuzzing::image();
    for slot in fuzzing::SLOTS {
        let at = fuzzing::cluster(fuzzing::ROOT) + slot * 32;
        each(&image[at..at + 96], 3000, fuzzing::parts);
    }
    let at = fuzzing::cluster(3);
    each(&image[at..at + 56], 3000, fuzzing::parts);
}

#[test]
fn exfat_operations() {
    let image = fuzzing::image();
    let mut rng = Rng::new(7);
    let mut run = |image: &[u8]| {
        let input: Vec<u8> = (0..128).map(|_| rng.next_u64() as u8).collect();
        in_time(|| fuzzing::operations(&input, image));
    };
    for _ in 0..1000 {
        run(&image);
    }
    // Mutations of the small structures with the most meaning: FAT, bitmap, directories.
    let (from, to) = (fuzzing::FAT, fuzzing::cluster(10));
    each(&image[from..to], 2500, |bytes| {
        let mut image = image.clone();
        let len = bytes.len().min(to - from);
        image[from..from + len].copy_from_slice(&bytes[..len]);
        run(&image);
    });
}
