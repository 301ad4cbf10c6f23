//! Fuzz targets over mutations of the small, dense structures, which mutations of a whole volume
//! seldom reach.

use forerun_exfat::fuzzing;
use forerun_testkit::mutate::{each, in_time};
use forerun_testkit::rng::Rng;

/// Runs `check` on the volume with each of `rounds` mutations of `range`.
fn each_within(range: std::ops::Range<usize>, rounds: usize, mut check: impl FnMut(&[u8])) {
    let image = fuzzing::image();
    each(&image[range.clone()], rounds, |bytes| {
        let mut image = image.clone();
        let len = bytes.len().min(range.len());
        image[range.start..range.start + len].copy_from_slice(&bytes[..len]);
        check(&image);
    });
}

#[test]
fn directories() {
    let root = fuzzing::cluster(fuzzing::ROOT);
    each_within(root..root + 1024, 6000, |image| {
        fuzzing::walk(image);
    });
}

#[test]
fn up_case_tables() {
    let at = fuzzing::cluster(3);
    each(&fuzzing::image()[at..at + 56], 3000, fuzzing::parts);
}

#[test]
fn operations() {
    let mut rng = Rng::new(7);
    let mut run = |image: &[u8]| {
        let input: Vec<u8> = (0..128).map(|_| rng.next_u64() as u8).collect();
        in_time(|| fuzzing::operations(&input, image));
    };
    for _ in 0..1000 {
        run(&fuzzing::image());
    }
    // FAT, bitmap, and directories.
    each_within(fuzzing::FAT..fuzzing::cluster(10), 2500, run);
}
