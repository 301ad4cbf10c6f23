use std::sync::Arc;

use forerun_vfs::{Limits, MakeSpool};

/// Decoded length of a span of blocks that refer back. At this length, the histories of gzip spans
/// take about 0.8 % of the file. Half the length would double that, and halve the work of a random
/// read.
const SPAN_LEN: u64 = 4 << 20;
/// Length of one read.
const CHUNK: usize = 1 << 20;

#[derive(Clone)]
pub struct IndexOptions {
    pub limits: Limits,
    /// Whether to end a damaged stream at the damage, instead of failing.
    pub rescue: bool,
    /// Makes the temporary file for streams that cannot be decoded from the middle.
    pub spool: Option<Arc<dyn MakeSpool>>,
    /// Decoded length from which on a gzip span ends at the next DEFLATE block. Applies also to LZ4
    /// blocks that refer back.
    pub span_len: u64,
    pub chunk: usize,
    /// Whether to write all decoded bytes to the temporary file, even those of streams that could
    /// be decoded from the middle. There are then no spans.
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
