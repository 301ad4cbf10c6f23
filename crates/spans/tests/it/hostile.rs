//! Hostile, truncated and damaged streams, and decompression bombs.

use forerun_spans::IndexOptions;
use forerun_testkit::mutate::{in_time, is_located};
use forerun_vfs::{Bound, Error, Limits};

use crate::common::{decode, options, pass, python, run, text};

fn streams(bytes: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let programs = ["gzip", "zstd", "xz", "bzip2"];
    let streams = programs.map(|program| Some((program, run(program, &["-c"], bytes)?)));
    // Small blocks that refer to earlier ones, with all checksums.
    let lz4 = run("lz4", &["-c", "-BD", "-B64", "-BX", "-q"], bytes);
    let lz4 = lz4.map(|stream| ("lz4", stream));
    streams.into_iter().chain([lz4]).flatten().collect()
}

fn of_both(span_len: u64) -> [IndexOptions; 2] {
    [false, true].map(|rescue| IndexOptions {
        rescue,
        ..options(span_len)
    })
}

#[test]
fn damage_is_named_with_its_place_or_ends_a_rescue() {
    let bytes = text(20_000);
    for (program, stream) in streams(&bytes) {
        for place in (0..stream.len()).step_by(11) {
            let mut altered = stream.clone();
            altered[place] ^= 0x10;
            if forerun_spans::Compression::of(&altered).is_none() {
                continue;
            }
            in_time(|| {
                let [strict, rescue] = of_both(1000);
                match pass(&altered, &strict) {
                    Err(error) => assert!(is_located(&error), "{program} at {place}: {error}"),
                    // Damage in times, names and unused codes goes unnoticed.
                    Ok((_, out)) => assert!(out == bytes, "{program} at {place}"),
                }
                let (indexed, out) = pass(&altered, &rescue).unwrap();
                assert!(decode(&altered, &indexed) == out, "{program} at {place}");
            });
        }
    }
}

#[test]
fn a_rescue_keeps_what_comes_before_the_cut() {
    let bytes = text(200_000);
    for (program, stream) in streams(&bytes) {
        for len in (20..stream.len()).step_by(3001) {
            let cut = &stream[..len];
            let [strict, rescue] = of_both(10_000);
            let error = pass(cut, &strict).unwrap_err().to_string();
            assert!(
                error.contains("ends within the stream"),
                "{program}: {error}"
            );
            let (indexed, out) = pass(cut, &rescue).unwrap();
            assert!(indexed.damage.is_some());
            assert!(bytes.starts_with(&out), "{program} cut at {len}");
            assert!(decode(cut, &indexed) == out, "{program} cut at {len}");
            // gzip returns all bytes before the damage; bzip2 only whole blocks of 900 kB.
            assert!(
                program != "gzip" || len < 3000 || out.len() > len,
                "{len} gave {}",
                out.len()
            );
        }
    }
}

#[test]
fn checksums_and_lengths_are_verified() {
    let Some(stream) = run("gzip", &["-c"], b"bytes") else {
        return;
    };
    let check = |place: usize, expected: &str| {
        let mut altered = stream.clone();
        altered[stream.len() - place] ^= 1;
        let error = pass(&altered, &options(1)).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    check(8, "checksum");
    check(4, "it declares");
    let mut altered = stream.clone();
    altered[3] |= 0x80;
    let error = pass(&altered, &options(1)).unwrap_err().to_string();
    assert!(error.contains("flags 0x8"), "{error}");
}

#[test]
fn a_bomb_is_cut_by_the_limits() {
    let script = "c = zlib.compressobj(9, zlib.DEFLATED, 31)\n\
                  for _ in range(100): out.write(c.compress(bytes(1 << 20)))\n\
                  out.write(c.flush())";
    let Some(stream) = python(script, b"") else {
        return;
    };
    let mut options = options(1 << 20);
    options.limits.stream_bytes = 10 << 20;
    let error = pass(&stream, &options).unwrap_err();
    assert!(
        matches!(error, Error::Limit { bound: Bound::StreamBytes, limit, .. } if limit == 10 << 20),
        "{error}"
    );
    options.limits.stream_bytes = 100 << 20;
    assert_eq!(pass(&stream, &options).unwrap().1.len(), 100 << 20);
    // A DEFLATE block may be too long to be decoded as one span.
    options.limits.block_len = 1 << 20;
    let error = pass(&stream, &options).unwrap_err();
    assert!(
        matches!(
            error,
            Error::Limit {
                bound: Bound::Other,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn memory_for_spans_is_bounded() {
    let Some(stream) = run("gzip", &["-c", "-1"], &text(1_000_000)) else {
        return;
    };
    let mut options = options(1);
    options.limits = Limits::default();
    options.limits.walk_bytes = 20_000;
    let error = pass(&stream, &options).unwrap_err();
    assert!(
        matches!(
            error,
            Error::Limit {
                bound: Bound::WalkMemory,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn errors_of_the_receiver_end_the_pass() {
    let Some(stream) = run("gzip", &["-c"], b"bytes") else {
        return;
    };
    let source = forerun_io::MemorySource::new(&stream[..]);
    for options in of_both(1) {
        let compression = forerun_spans::Compression::Gzip;
        let result =
            forerun_spans::index(&source, compression, &options, &mut |_| Err(Error::NoSpace));
        assert!(matches!(result, Err(Error::NoSpace)));
    }
}
