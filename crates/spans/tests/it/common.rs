//! Bytes to compress, programs that compress them, and a reader of spans.

use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use forerun_io::{BlobId, MemorySource, ReadAt};
use forerun_spans::{Compression, IndexOptions, Indexed, index};
pub use forerun_testkit::generate::text;
pub use forerun_testkit::piped as run;
use forerun_vfs::{MakeSpool, Place, Result};

/// Runs a Python script over `input`, which the script has as `data`. The script writes to `out`.
pub fn python(script: &str, input: &[u8]) -> Option<Vec<u8>> {
    let script = format!(
        "import gzip, io, sys, zlib\ndata = sys.stdin.buffer.read()\nout = sys.stdout.buffer\n{script}"
    );
    run("python3", &["-c", &script], input)
}

/// Makes temporary files in the directory for temporary files.
pub struct Temporary;

impl MakeSpool for Temporary {
    fn make(&self) -> io::Result<File> {
        tempfile::tempfile()
    }
}

pub fn options(span_len: u64) -> IndexOptions {
    IndexOptions {
        spool: Some(Arc::new(Temporary)),
        span_len,
        ..IndexOptions::default()
    }
}

/// Indexes a stream. Also returns the decoded bytes.
pub fn pass(stream: &[u8], options: &IndexOptions) -> Result<(Indexed, Vec<u8>)> {
    let compression = Compression::of(stream).unwrap();
    let mut out = Vec::new();
    let source = MemorySource::new(stream);
    let indexed = index(&source, compression, options, &mut |bytes| {
        out.extend_from_slice(bytes);
        Ok(())
    })?;
    Ok((indexed, out))
}

pub fn decode(stream: &[u8], indexed: &Indexed) -> Vec<u8> {
    let mut out = Vec::new();
    let all = 0..indexed.spans.decoded_len();
    let _ended = indexed.spans.map(all, &mut |part, place| {
        assert_eq!(part.start, u64::try_from(out.len()).unwrap());
        let len = usize::try_from(part.end - part.start).unwrap();
        let mut bytes = vec![0; len];
        match place {
            Place::Encoded { block, skip } => {
                assert_eq!((block.blob, skip), (BlobId::IMAGE, 0));
                let history = indexed.spans.history(&block).unwrap();
                let range = block.stored();
                let range =
                    usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap();
                let decoded = block.decode_after(&history, &stream[range], &mut bytes);
                assert_eq!(decoded, Ok(len), "{block:?}");
            }
            Place::Stored { blob, offset } => {
                assert_eq!(blob, forerun_spans::SPOOL);
                let spool = indexed.spool.as_ref().unwrap();
                spool.read_exact_at(offset, &mut bytes).unwrap();
            }
            other => panic!("{other:?}"),
        }
        out.extend(bytes);
        ControlFlow::Continue(())
    });
    out
}

/// Asserts that a pass returns `bytes`, and that the spans decode to them one by one. Returns the
/// number of spans.
#[track_caller]
pub fn assert_decodes(stream: &[u8], bytes: &[u8], options: &IndexOptions) -> usize {
    let (indexed, out) = pass(stream, options).unwrap();
    assert!(out == bytes, "the pass gives other bytes");
    assert!(
        decode(stream, &indexed) == bytes,
        "the spans give other bytes"
    );
    assert!(indexed.damage.is_none());
    indexed.spans.count()
}
