//! gzip streams of several programs, divided into spans.

use forerun_io::MemorySource;
use forerun_spans::{Compression, IndexOptions};
use forerun_testkit::CountingSource;
use forerun_vfs::Place;

use crate::common::{assert_decodes, options, pass, python, run, text};

#[test]
fn spans_of_any_length_decode_on_their_own() {
    let bytes = text(3_000_000);
    for level in ["-1", "-6", "-9"] {
        let Some(stream) = run("gzip", &["-c", level], &bytes) else {
            return;
        };
        for span_len in [1, 100_000, 1 << 20, u64::MAX / 2] {
            let spans = assert_decodes(&stream, &bytes, &options(span_len));
            match span_len {
                1 => assert!(spans > 10, "{spans} spans"),
                100_000 => assert!((8..=30).contains(&spans), "{spans} spans"),
                1_048_576 => assert!((2..=3).contains(&spans), "{spans} spans"),
                _ => assert_eq!(spans, 1),
            }
        }
    }
}

#[test]
fn the_source_is_read_once_and_in_order() {
    let bytes = text(2_000_000);
    let Some(stream) = run("gzip", &["-c"], &bytes) else {
        return;
    };
    let len = stream.len();
    let source = CountingSource::new(MemorySource::new(&stream[..]));
    let options = IndexOptions {
        chunk: 64 << 10,
        ..options(1 << 20)
    };
    let indexed = forerun_spans::index(&source, Compression::Gzip, &options, &mut |_| Ok(()));
    assert_eq!(indexed.unwrap().spans.decoded_len(), 2_000_000);
    let expected = u64::try_from(len).unwrap();
    assert_eq!(source.bytes(), expected);
    assert_eq!(source.reads(), expected.div_ceil(64 << 10));
}

#[test]
fn members_follow_each_other() {
    let bytes = text(500_000);
    let members = [&bytes[..7], &bytes[7..300_000], &[], &bytes[300_000..]];
    let mut stream = Vec::new();
    for member in members {
        let Some(compressed) = run("gzip", &["-c"], member) else {
            return;
        };
        stream.extend(compressed);
    }
    assert_eq!(assert_decodes(&stream, &bytes, &options(1 << 20)), 3);
    stream.extend([0; 1000]);
    assert_eq!(assert_decodes(&stream, &bytes, &options(1 << 20)), 3);
    let end = u64::try_from(stream.len() - 1000).unwrap();
    let garbage = [&stream[..stream.len() - 1000], b"garbage"].concat();
    let (indexed, out) = pass(&garbage, &options(1 << 20)).unwrap();
    assert_eq!((indexed.trailing, out.len()), (Some(end), bytes.len()));
}

#[test]
fn blocks_of_every_kind_and_flushes_are_boundaries() {
    let bytes = text(400_000);
    let scripts = [
        // Only stored blocks.
        "out.write(gzip.compress(data, 0))",
        // Only fixed codes.
        "c = zlib.compressobj(6, zlib.DEFLATED, 31, 8, zlib.Z_FIXED)\nout.write(c.compress(data) + c.flush())",
        // Empty blocks in between, at byte boundaries and elsewhere.
        "c = zlib.compressobj(6, zlib.DEFLATED, 31)\n\
         for at in range(0, len(data), 10007):\n\
         \x20   out.write(c.compress(data[at:at+10007]) + c.flush(zlib.Z_SYNC_FLUSH))\n\
         \x20   out.write(c.flush(zlib.Z_PARTIAL_FLUSH))\n\
         out.write(c.flush())",
        // A small window, and a header with all fields.
        "c = zlib.compressobj(9, zlib.DEFLATED, -9)\n\
         out.write(b'\\x1f\\x8b\\x08\\x1e' + bytes(6) + b'\\x05\\x00extra' + b'name\\0' + b'comment\\0' + b'\\xab\\xcd')\n\
         out.write(c.compress(data) + c.flush())\n\
         out.write(zlib.crc32(data).to_bytes(4, 'little') + len(data).to_bytes(4, 'little'))",
    ];
    for script in scripts {
        let Some(stream) = python(script, &bytes) else {
            return;
        };
        for span_len in [1, 50_000] {
            let spans = assert_decodes(&stream, &bytes, &options(span_len));
            assert!(spans > 3, "{spans} spans: {script}");
        }
    }
}

#[test]
fn reads_of_any_length_give_the_same_spans() {
    let bytes = text(300_000);
    let Some(stream) = run("gzip", &["-c", "-1"], &bytes) else {
        return;
    };
    let with = |chunk| {
        let options = IndexOptions {
            chunk,
            ..options(20_000)
        };
        pass(&stream, &options).unwrap().0.spans
    };
    let expected = with(1 << 20);
    for chunk in [1, 2, 3, 10, 100, 4096] {
        assert_eq!(with(chunk), expected, "reads of {chunk} bytes");
    }
}

#[test]
fn an_index_takes_less_than_a_hundredth_of_the_stream() {
    let bytes = text(24 << 20);
    let Some(stream) = run("gzip", &["-c"], &bytes) else {
        return;
    };
    let (indexed, _) = pass(&stream, &options(IndexOptions::default().span_len)).unwrap();
    let mut held = 0;
    let all = 0..indexed.spans.decoded_len();
    let _ended = indexed.spans.map(all, &mut |_, place| {
        let Place::Encoded { block, .. } = place else {
            panic!("{place:?}");
        };
        let history = indexed.spans.history(&block).unwrap();
        held += run("zstd", &["-c", "-9"], &history).map_or(0, |packed| packed.len());
        std::ops::ControlFlow::Continue(())
    });
    assert!(held < stream.len() / 100, "{held} of {}", stream.len());
}
