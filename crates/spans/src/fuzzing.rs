//! Entry point of the fuzz target, so that the same code runs in a plain test. Not part of the API.

use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use forerun_io::{MemorySource, usize_from};
use forerun_vfs::{Error, Limits, MakeSpool, Place};

use crate::{Compression, IndexOptions, Indexed, index};

/// Makes no temporary file: an input that needs one is an error.
struct Nowhere;

impl MakeSpool for Nowhere {
    fn make(&self) -> io::Result<File> {
        Err(io::ErrorKind::StorageFull.into())
    }
}

/// Indexes `bytes`, whose first byte chooses lengths of spans and of reads, and decodes each span
/// on its own. Returns the errors.
///
/// # Panics
/// If a span does not decode to the bytes of the first pass.
pub fn index_and_decode(bytes: &[u8]) -> Vec<Error> {
    let Some((&choice, stream)) = bytes.split_first() else {
        return Vec::new();
    };
    let Some(compression) = Compression::of(stream) else {
        return Vec::new();
    };
    let mut limits = Limits::default();
    limits.stream_bytes = 1 << 20;
    limits.block_len = 256 << 10;
    limits.walk_bytes = 4 << 20;
    let mut options = IndexOptions {
        limits,
        rescue: false,
        spool: Some(Arc::new(Nowhere)),
        span_len: 1 << (choice % 16),
        chunk: 1 << (choice / 16),
        ..IndexOptions::default()
    };
    let mut errors = Vec::new();
    for rescue in [false, true] {
        options.rescue = rescue;
        let mut out = Vec::new();
        let mut sink = |decoded: &[u8]| {
            out.extend_from_slice(decoded);
            Ok(())
        };
        match index(&MemorySource::new(stream), compression, &options, &mut sink) {
            Ok(indexed) => decode(stream, &indexed, &out),
            Err(error) => errors.push(error),
        }
    }
    errors
}

fn decode(stream: &[u8], indexed: &Indexed, out: &[u8]) {
    let mut at = 0;
    let all = 0..indexed.spans.decoded_len();
    let _ended = indexed.spans.map(all, &mut |part, place| {
        let block = match place {
            Place::Encoded { block, skip: 0 } => Some(block),
            _ => None,
        };
        assert!(block.is_some(), "a span that is no whole block");
        let Some(block) = block else {
            return ControlFlow::Break(());
        };
        let stored = block.stored();
        let stored = usize_from(stored.start)..usize_from(stored.end);
        let mut bytes = vec![0; usize_from(part.end - part.start)];
        let history = indexed.spans.history(&block);
        let decoded = block.decode_after(&history.unwrap_or_default(), &stream[stored], &mut bytes);
        assert_eq!(decoded, Ok(bytes.len()), "{block:?}");
        let end = at + bytes.len();
        assert!(
            out.get(at..end) == Some(&bytes[..]),
            "{block:?} decodes to other bytes"
        );
        at = end;
        ControlFlow::Continue(())
    });
    assert_eq!(at, out.len(), "the spans leave decoded bytes out");
}
