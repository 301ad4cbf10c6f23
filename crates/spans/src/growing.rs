//! The spans of a stream that is still being read: those that are complete so far.

use std::fmt;
use std::ops::{ControlFlow, Range};
use std::sync::{Arc, OnceLock, RwLock};

use forerun_io::Unpoisoned as _;
use forerun_vfs::{EncodedBlock, Place, Result};

use crate::Compression;
use crate::spans::{Span, Spans};
use crate::spool::{Spool, Written};

/// Called after spans were added.
type Added = Box<dyn Fn() + Send + Sync>;

/// Spans that a pass adds while others read them ([`IndexOptions::growing`](crate::IndexOptions::growing)).
pub struct GrowingSpans {
    spans: RwLock<Spans>,
    spool: OnceLock<Arc<Written>>,
    added: Added,
}

impl fmt::Debug for GrowingSpans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GrowingSpans")
            .field(&self.decoded_len())
            .finish()
    }
}

impl GrowingSpans {
    /// Creates an empty list, which calls `added` after each span.
    #[must_use]
    pub fn new(compression: Compression, added: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            spans: RwLock::new(Spans::new(compression, Vec::new())),
            spool: OnceLock::new(),
            added: Box::new(added),
        }
    }

    /// Takes the spool, of which spans that are added later have parts.
    pub(crate) fn begin_spool(&self, written: Arc<Written>) {
        self.spool.get_or_init(|| written);
    }

    /// Returns the decoded bytes in [`SPOOL`](crate::SPOOL), as far as the spans go; nothing before the first of them.
    #[must_use]
    pub fn spool(&self) -> Option<Spool> {
        let written = Arc::clone(self.spool.get()?);
        Some(written)
    }

    pub(crate) fn add(&self, span: Span) {
        self.spans.write().unpoisoned().push(span);
        (self.added)();
    }

    /// Moves the end of the last span, which is in the spool.
    pub(crate) fn extend(&self, end: u64) {
        self.spans.write().unpoisoned().extend(end);
        (self.added)();
    }

    /// Returns the compression of the stream.
    #[must_use]
    pub fn compression(&self) -> Compression {
        self.spans.read().unpoisoned().compression()
    }

    /// Returns how much of the decoded stream the spans cover, in bytes.
    #[must_use]
    pub fn decoded_len(&self) -> u64 {
        self.spans.read().unpoisoned().decoded_len()
    }

    /// Returns the places of the decoded bytes in `range`, in order and without gaps, each with its part of the
    /// range: as far as the spans go.
    #[must_use]
    pub fn places(&self, range: Range<u64>) -> Vec<(Range<u64>, Place)> {
        let mut places = Vec::new();
        let _never_breaks = self
            .spans
            .read()
            .unpoisoned()
            .map(range, &mut |part, place| {
                places.push((part, place));
                ControlFlow::Continue(())
            });
        places
    }

    /// Returns the bytes that a block of the stream refers to: [`Spans::history`].
    ///
    /// # Errors
    /// Those of [`Spans::history`].
    pub fn history(&self, block: &EncodedBlock) -> Result<Vec<u8>> {
        // Not under the lock: they are decoded.
        let history = self.spans.read().unpoisoned().history_of(block).cloned();
        Spans::decoded(self.compression(), block, history.as_ref())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use std::sync::atomic::{AtomicU64, Ordering};

    use forerun_io::MemorySource;

    use super::*;
    use crate::{IndexOptions, index};

    fn packed(program: &str, text: &[u8]) -> MemorySource {
        let mut encoder = std::process::Command::new(program)
            .args(["-c", "-1"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = encoder.stdin.take().unwrap();
        let input = text.to_vec();
        let writer = std::thread::spawn(move || std::io::Write::write_all(&mut stdin, &input));
        let packed = encoder.wait_with_output().unwrap().stdout;
        writer.join().unwrap().unwrap();
        MemorySource::new(packed)
    }

    struct Temporary;

    impl forerun_vfs::MakeSpool for Temporary {
        fn make(&self) -> std::io::Result<std::fs::File> {
            // Another layer's spool is before it.
            let mut file = tempfile::tempfile()?;
            std::io::Write::write_all(&mut file, b"before")?;
            Ok(file)
        }
    }

    /// Streams that cannot be decoded from within are read from where they are spooled.
    #[test]
    fn a_spool_can_be_read_before_the_stream_has_ended() {
        let text: Vec<u8> = (0..2_000_000_u32).flat_map(u32::to_le_bytes).collect();
        for (program, compression) in [
            ("zstd", Compression::Zstd),
            ("xz", Compression::Xz),
            ("bzip2", Compression::Bzip2),
        ] {
            if forerun_testkit::require::program(program).is_none() {
                continue;
            }
            let source = packed(program, &text);
            let growing = Arc::new(GrowingSpans::new(compression, || {}));
            let mut options = IndexOptions {
                chunk: 10_000,
                spool: Some(Arc::new(Temporary)),
                growing: Some(Arc::clone(&growing)),
                ..IndexOptions::default()
            };
            options.limits.block_len = 1 << 20;
            let (mut seen, mut read) = (0_u64, 0_u64);
            let indexed = index(&source, compression, &options, &mut |bytes| {
                seen += forerun_io::u64_from(bytes.len());
                let known = growing.decoded_len();
                assert!(known <= seen && growing.places(known..seen).is_empty());
                if known == read {
                    return Ok(());
                }
                for (part, place) in growing.places(read..known) {
                    let Place::Stored { blob, offset } = place else {
                        panic!("{program}: {place:?}");
                    };
                    assert_eq!((blob, offset), (crate::SPOOL, part.start));
                    let spool = growing.spool().unwrap();
                    assert_eq!(spool.len(), known);
                    let range = [part.start, part.end].map(forerun_io::usize_from);
                    let mut out = vec![0; range[1] - range[0]];
                    spool.read_exact_at(offset, &mut out).unwrap();
                    assert!(out == text[range[0]..range[1]], "{program} at {part:?}");
                    assert!(spool.read_exact_at(known, &mut [0]).is_err());
                }
                read = known;
                Ok(())
            });
            let indexed = indexed.unwrap();
            assert!(read > 4_000_000, "{program}: {read} of {}", text.len());
            assert_eq!(growing.decoded_len(), indexed.spans.decoded_len());
            assert_eq!(indexed.spans.count(), 1);
            let mut out = vec![0; text.len()];
            for spool in [growing.spool(), indexed.spool] {
                spool.unwrap().read_exact_at(0, &mut out).unwrap();
                assert!(out == text, "{program}");
            }
        }
    }

    #[test]
    fn spans_can_be_read_before_the_stream_has_ended() {
        let text: Vec<u8> = (0..400_000_u32).flat_map(u32::to_le_bytes).collect();
        let source = packed("gzip", &text);
        let added = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&added);
        let growing = Arc::new(GrowingSpans::new(Compression::Gzip, move || {
            counted.fetch_add(1, Ordering::Relaxed);
        }));
        let options = IndexOptions {
            span_len: 100_000,
            chunk: 10_000,
            growing: Some(Arc::clone(&growing)),
            ..IndexOptions::default()
        };
        let (mut seen, mut earliest) = (0_u64, None);
        let indexed = index(&source, Compression::Gzip, &options, &mut |bytes| {
            seen += forerun_io::u64_from(bytes.len());
            let known = growing.decoded_len();
            assert!(known <= seen);
            if known > 0 && earliest.is_none() {
                earliest = Some(seen);
                let places = growing.places(10..20);
                assert_eq!(places.len(), 1);
                assert!(growing.places(known..known + 1).is_empty());
            }
            Ok(())
        });
        let spans = indexed.unwrap().spans;
        assert!(earliest.unwrap() < 400_000, "{earliest:?}");
        assert_eq!(growing.decoded_len(), spans.decoded_len());
        assert_eq!(
            added.load(Ordering::Relaxed),
            forerun_io::u64_from(spans.count())
        );
        let mut places = Vec::new();
        let _ended = spans.map(0..u64::MAX, &mut |part, place| {
            if let Place::Encoded { block, .. } = &place {
                assert_eq!(
                    growing.history(block).unwrap(),
                    spans.history(block).unwrap()
                );
            }
            places.push((part, place));
            ControlFlow::Continue(())
        });
        assert_eq!(growing.places(0..u64::MAX), places);
    }
}
