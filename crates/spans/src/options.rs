//! The options of a pass over a stream.

use std::sync::Arc;

use forerun_vfs::{Limits, MakeSpool};

/// Decoded bytes of a span of blocks that refer back. Of gzip, the bytes before each span, which it refers to, take about 0.8 % of
/// the file at this length; half of it would double that, and halve the work of a random read.
const SPAN_LEN: u64 = 4 << 20;
/// Bytes of one read.
const CHUNK: usize = 1 << 20;

/// The options of a pass.
#[derive(Clone)]
pub struct IndexOptions {
    /// Bounds on what the stream may ask for.
    pub limits: Limits,
    /// Ends the stream where it is damaged.
    pub rescue: bool,
    /// Makes the spool for streams that cannot be decoded from within.
    pub spool: Option<Arc<dyn MakeSpool>>,
    /// Decoded bytes of a span of gzip: it ends with the first DEFLATE block from there on. The same for linked
    /// blocks of LZ4.
    pub span_len: u64,
    /// Bytes of one read.
    pub chunk: usize,
    /// Spools everything, even streams that could be decoded from within. There are then no spans.
    pub spool_all: bool,
}

impl Default for IndexOptions {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            rescue: false,
            spool: None,
            span_len: SPAN_LEN,
            chunk: CHUNK,
            spool_all: false,
        }
    }
}

impl std::fmt::Debug for IndexOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IndexOptions")
            .field("limits", &self.limits)
            .field("rescue", &self.rescue)
            .field("span_len", &self.span_len)
            .finish_non_exhaustive()
    }
}
