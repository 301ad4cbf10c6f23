//! Effective changes of bytes, the same each time: fuzzing without a fuzzer.

use std::time::Duration;

use forerun_vfs::Error;
use rustix::time::{ClockId, clock_gettime};

use crate::rng::Rng;

/// Changes some bytes: single bits, plausible offsets, bytes copied from elsewhere, a shorter
/// image.
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

/// CPU time of its thread that a fuzzing entry point may take for one input. Most take some
/// milliseconds.
pub const TIME: Duration = Duration::from_secs(5);

/// Runs a fuzzing entry point, under a fuzzer or over a seed in a test.
pub fn in_time<T>(run: impl FnOnce() -> T) -> T {
    within(TIME, run)
}

fn within<T>(time: Duration, run: impl FnOnce() -> T) -> T {
    // Not wall time, because the machine may run other processes meanwhile.
    let began = clock_gettime(ClockId::ThreadCPUTime);
    let done = run();
    let took = clock_gettime(ClockId::ThreadCPUTime) - began;
    let took = Duration::try_from(took).unwrap();
    assert!(took <= time, "one input took {took:?}, more than {time:?}");
    done
}

/// Checks an empty input, the seed, and `rounds` mutations of it; each [in time](in_time).
pub fn each(seed: &[u8], rounds: usize, mut check: impl FnMut(&[u8])) {
    let mut check = |bytes: &[u8]| in_time(|| check(bytes));
    check(&[]);
    check(seed);
    let mut rng = Rng::new(u64::try_from(seed.len()).unwrap());
    for _ in 0..rounds {
        check(&mutate(seed, &mut rng));
    }
}

/// Checks copies of a seed with the largest signed and unsigned numbers of 16, 32 and 64 bits at
/// each of `places` places; each [in time](in_time).
pub fn extremes(seed: &[u8], places: usize, mut check: impl FnMut(&[u8])) {
    let step = (seed.len() / places / 2 * 2).max(2);
    for at in (0..seed.len()).step_by(step) {
        for len in [2, 4, 8] {
            for (first, last) in [(0xff, 0xff), (0xff, 0x7f), (0x7f, 0xff), (0xf8, 0xff)] {
                let mut bytes = seed.to_vec();
                let end = (at + len).min(bytes.len());
                bytes[at..end].fill(0xff);
                bytes[at] = first;
                bytes[end - 1] = last;
                in_time(|| check(&bytes));
            }
        }
    }
}

/// Returns whether an error of a hostile image names its location, a node, or a limit.
pub fn is_located(error: &Error) -> bool {
    match error {
        Error::Corrupt(corrupt) => corrupt.to_string().contains("offset"),
        Error::DirectoryLoop { .. }
        | Error::Limit { .. }
        | Error::StaleNode(_)
        | Error::Blob { .. }
        | Error::Spool { .. }
        | Error::Unsupported(_)
        | Error::UnknownFormat { .. } => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_of_a_run_in_time_is_given() {
        assert_eq!(in_time(|| 7), 7);
    }

    #[test]
    #[should_panic(expected = "one input took")]
    fn a_run_that_takes_too_long_is_a_finding() {
        within(Duration::ZERO, || {
            std::hint::black_box(crate::generate::bytes(1, 1 << 16))
        });
    }
}
