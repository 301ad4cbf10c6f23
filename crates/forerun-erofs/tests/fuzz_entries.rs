//! What the fuzz targets call, over their seeds and some thousand mutations that are the same each
//! time: so that it runs without a nightly compiler.
#![allow(clippy::unwrap_used, clippy::panic, clippy::as_conversions)]

mod golden;

use forerun_erofs::fuzzing;
use forerun_testkit::rng::Rng;
use forerun_vfs::Error;

const ROUNDS: usize = 400;

/// Some bytes changed, in the ways that bring most about: single bits, plausible offsets, bytes
/// copied from elsewhere, a shorter image.
fn mutate(seed: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=rng.below(3) {
        if bytes.is_empty() {
            break;
        }
        let at = rng.below(bytes.len() as u64) as usize;
        match rng.below(8) {
            0..3 => {
                let end = (at + 2).min(bytes.len());
                let offset = rng.below(bytes.len() as u64) as u16;
                bytes[at..end].copy_from_slice(&offset.to_le_bytes()[..end - at]);
            }
            3 => bytes[at] ^= 1 << rng.below(8),
            4 => bytes[at] = rng.next_u64() as u8,
            5 => bytes[at] = 0xff,
            6 => {
                let from = rng.below(bytes.len() as u64) as usize;
                let len = (bytes.len() - at.max(from)).min(32);
                bytes.copy_within(from..from + len, at);
            }
            _ => bytes.truncate(at.max(1)),
        }
    }
    bytes
}

fn each(seed: &[u8], rounds: usize, mut check: impl FnMut(&[u8])) {
    check(&[]);
    check(seed);
    let mut rng = Rng::new(seed.len() as u64);
    for _ in 0..rounds {
        check(&mutate(seed, &mut rng));
    }
}

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let mut seeds = fuzzing::seeds();
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
                let located = match &error {
                    Error::Corrupt(corrupt) => corrupt.to_string().contains("offset"),
                    Error::DirectoryLoop { .. }
                    | Error::Limit { .. }
                    | Error::StaleNode(_)
                    | Error::Blob { .. }
                    | Error::Unsupported(_)
                    | Error::UnknownFormat { .. } => true,
                    _ => false,
                };
                assert!(located, "{name}: {error}");
            }
        });
    }
    // Or the mutations have become too tame.
    for kind in ["corrupt", "unsupported"] {
        assert!(kinds.contains(kind), "{kinds:?}");
    }
}
