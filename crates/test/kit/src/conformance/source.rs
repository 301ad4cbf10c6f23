//! The conformance suite of sources.

use std::io::ErrorKind;
use std::thread;

use forerun_io::{ReadAt, u64_from, usize_from};

use crate::rng::Rng;

/// Checks sources against the contract of [`ReadAt`]. `make` returns a source with exactly these
/// bytes; it is called with several lengths, including 0.
pub fn check_source<S: ReadAt>(mut make: impl FnMut(&[u8]) -> S) {
    for len in [0, 1, 511, 512, 1024, 4096, 4097, 300_001] {
        let bytes = crate::generate::bytes(u64_from(len), len);
        let source = make(&bytes);
        assert_eq!(source.len(), u64_from(len), "length");
        assert_eq!(source.is_empty(), len == 0, "emptiness");
        whole_and_parts(&source, &bytes);
        past_the_end(&source, u64_from(len));
        many_at_once(&source, &bytes);
        assert_eq!(source.len(), u64_from(len), "the length changed");
        whole_and_parts(&source, &bytes);
    }
}

fn whole_and_parts(source: &dyn ReadAt, bytes: &[u8]) {
    let len = bytes.len();
    expect(source, bytes, 0, len);
    for at in [0, 1, len / 2, len.saturating_sub(1), len] {
        for want in [0, 1, 2, 512, 4096, len] {
            if at + want <= len {
                expect(source, bytes, at, want);
            }
        }
    }
}

fn past_the_end(source: &dyn ReadAt, len: u64) {
    for (offset, want) in [
        (len, 1),
        (len.saturating_sub(1), 2),
        (len + 1, 0),
        (len + 1, 1),
        (0, usize_from(len) + 1),
        (u64::MAX, 1),
        (u64::MAX, 0),
        (u64::MAX - 1, 4096),
        (1 << 63, 1),
    ] {
        let error = match source.read_exact_at(offset, &mut vec![0; want]) {
            Ok(()) => panic!("{want} bytes at {offset} of a source of {len} were read"),
            Err(error) => error,
        };
        assert_eq!(
            error.kind(),
            ErrorKind::UnexpectedEof,
            "{want} bytes at {offset} of a source of {len}: {error}"
        );
    }
}

/// Checks that threads that read at different offsets do not disturb each other: positional reads
/// have no cursor.
fn many_at_once(source: &dyn ReadAt, bytes: &[u8]) {
    thread::scope(|scope| {
        for seed in 0..4 {
            scope.spawn(move || {
                let mut rng = Rng::new(seed);
                for _ in 0..50 {
                    let at = usize_from(rng.below(u64_from(bytes.len()) + 1));
                    let want = usize_from(rng.below(u64_from(bytes.len() - at) + 1));
                    expect(source, bytes, at, want);
                }
            });
        }
    });
}

fn expect(source: &dyn ReadAt, bytes: &[u8], at: usize, want: usize) {
    let mut out = vec![0x5A; want];
    if let Err(error) = source.read_exact_at(u64_from(at), &mut out) {
        panic!(
            "{want} bytes at {at} of a source of {}: {error}",
            bytes.len()
        );
    }
    assert!(
        out == bytes[at..at + want],
        "{want} bytes at {at} of a source of {} differ",
        bytes.len()
    );
}
