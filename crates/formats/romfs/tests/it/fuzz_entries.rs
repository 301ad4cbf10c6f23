//! The entry points of the fuzz targets, over their seeds and some thousand mutations that are the
//! same each time. They need no nightly compiler.

use forerun_romfs::fuzzing;
use forerun_testkit::mutate::in_time;
use forerun_testkit::rng::Rng;
use forerun_vfs::Error;

const ROUNDS: usize = 1500;

/// Changes some bytes, in the ways that reach the most code: single bits, plausible offsets, bytes
/// copied from elsewhere, a shorter image.
fn mutate(seed: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=rng.below(4) {
        let at = rng.below(bytes.len() as u64) as usize;
        match rng.below(8) {
            0..4 => {
                let at = at & !3;
                let end = (at + 4).min(bytes.len());
                let offset = (rng.below(bytes.len() as u64) as u32 & !0xF) | rng.below(16) as u32;
                bytes[at..end].copy_from_slice(&offset.to_be_bytes()[..end - at]);
            }
            4 => bytes[at] ^= 1 << rng.below(8),
            5 => bytes[at] = rng.next_u64() as u8,
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

fn each(mut check: impl FnMut(&str, &[u8])) {
    for (name, seed) in fuzzing::seeds().unwrap() {
        in_time(|| check(name, &seed));
        let mut rng = Rng::new(seed.len() as u64);
        for _ in 0..ROUNDS {
            let mutated = mutate(&seed, &mut rng);
            in_time(|| check(name, &mutated));
        }
    }
}

#[test]
fn seeds_are_sound() {
    for (name, seed) in fuzzing::seeds().unwrap() {
        assert!(fuzzing::walk(&seed).is_empty(), "{name}");
        assert_eq!(fuzzing::with_checksum(&seed), seed, "{name}");
    }
}

#[test]
fn romfs_superblock() {
    each(|_, bytes| fuzzing::superblock(bytes));
    fuzzing::superblock(&[]);
}

#[test]
fn romfs_header() {
    each(|_, bytes| {
        for at in (0..bytes.len()).step_by(16).take(32) {
            fuzzing::header(&bytes[at..]);
        }
    });
    fuzzing::header(&[]);
}

#[test]
fn romfs_walk() {
    let mut kinds = std::collections::BTreeSet::new();
    each(|name, bytes| {
        for error in fuzzing::walk(bytes) {
            kinds.insert(error.kind());
            let located = match &error {
                Error::Corrupt(corrupt) => corrupt.to_string().contains("offset"),
                Error::DirectoryLoop { .. } | Error::Limit { .. } => true,
                _ => false,
            };
            assert!(located, "{name}: {error}");
        }
    });
    // Otherwise the mutations have become too tame.
    assert!(
        kinds.contains("corrupt") && kinds.contains("directory_loop"),
        "{kinds:?}"
    );
}
