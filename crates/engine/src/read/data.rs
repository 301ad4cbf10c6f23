//! Bytes on their way to the front end.

use std::ops::{Deref, Range};
use std::sync::Arc;

use super::buffer::Buffer;

/// What a read gives: a part of a cached block or of what was read ahead where one holds it all, so
/// that it is not copied on the way; else bytes of its own.
#[derive(Clone)]
pub struct Data {
    bytes: Bytes,
    range: Range<usize>,
}

#[derive(Clone)]
enum Bytes {
    Buffer(Arc<Buffer>),
    Block(Arc<[u8]>),
}

impl Data {
    /// `range` of `buffer`; nothing where it is not inside.
    pub(crate) fn of_buffer(buffer: Arc<Buffer>, range: Range<usize>) -> Option<Self> {
        buffer.get(range.clone())?;
        Some(Self {
            bytes: Bytes::Buffer(buffer),
            range,
        })
    }

    /// `range` of these bytes; nothing where it is not inside.
    pub(crate) fn part(mut self, range: Range<usize>) -> Option<Self> {
        self.get(range.clone())?;
        let start = self.range.start;
        self.range = start + range.start..start + range.end;
        Some(self)
    }

    /// `range` of `block`; nothing where it is not inside.
    pub(crate) fn of_block(block: Arc<[u8]>, range: Range<usize>) -> Option<Self> {
        block.get(range.clone())?;
        Some(Self {
            bytes: Bytes::Block(block),
            range,
        })
    }
}

impl Default for Data {
    /// No bytes.
    fn default() -> Self {
        Self {
            bytes: Bytes::Block(Arc::default()),
            range: 0..0,
        }
    }
}

impl Deref for Data {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let all: &[u8] = match &self.bytes {
            Bytes::Buffer(buffer) => buffer,
            Bytes::Block(block) => block,
        };
        // In range since the constructors.
        all.get(self.range.clone()).unwrap_or_default()
    }
}

impl std::fmt::Debug for Data {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Data({} bytes)", self.len())
    }
}
