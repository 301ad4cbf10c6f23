//! Bytes changed in the ways that bring most about, the same each time: fuzzing without a fuzzer.

use forerun_vfs::Error;

use crate::rng::Rng;

/// Some bytes changed: single bits, plausible offsets, bytes copied from elsewhere, a shorter image.
#[must_use]
pub fn mutate(seed: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    let below = |rng: &mut Rng, len: usize| {
        let at = rng.below(u64::try_from(len).unwrap());
        usize::try_from(at).unwrap()
    };
    for _ in 0..=rng.below(3) {
        if bytes.is_empty() {
            break;
        }
        let at = below(rng, bytes.len());
        match rng.below(8) {
            0..3 => {
                let end = (at + 2).min(bytes.len());
                let [low, high, ..] = below(rng, bytes.len()).to_le_bytes();
                bytes[at..end].copy_from_slice(&[low, high][..end - at]);
            }
            3 => bytes[at] ^= 1 << rng.below(8),
            4 => [bytes[at], ..] = rng.next_u64().to_le_bytes(),
            5 => bytes[at] = 0xff,
            6 => {
                let from = below(rng, bytes.len());
                let len = (bytes.len() - at.max(from)).min(32);
                bytes.copy_within(from..from + len, at);
            }
            _ => bytes.truncate(at.max(1)),
        }
    }
    bytes
}

/// Checks nothing, the seed, and so many mutations of it.
pub fn each(seed: &[u8], rounds: usize, mut check: impl FnMut(&[u8])) {
    check(&[]);
    check(seed);
    let mut rng = Rng::new(u64::try_from(seed.len()).unwrap());
    for _ in 0..rounds {
        check(&mutate(seed, &mut rng));
    }
}

/// Whether an error of a hostile image says what it is about: where, or which node, or which limit.
#[must_use]
pub fn is_located(error: &Error) -> bool {
    match error {
        Error::Corrupt(corrupt) => corrupt.to_string().contains("offset"),
        Error::DirectoryLoop { .. }
        | Error::Limit { .. }
        | Error::StaleNode(_)
        | Error::Blob { .. }
        | Error::Unsupported(_)
        | Error::UnknownFormat { .. } => true,
        _ => false,
    }
}
