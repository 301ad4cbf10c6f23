use std::ops::{Deref, Range};
use std::sync::Arc;

use super::buffer::Buffer;

/// The bytes of a read: a slice of the cached block or segment that holds all of them, or else a
/// buffer of their own.
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
    /// Returns `range` of `buffer`, or `None` if it is out of bounds.
    pub(crate) fn of_buffer(buffer: Arc<Buffer>, range: Range<usize>) -> Option<Self> {
        buffer.get(range.clone())?;
        Some(Self {
            bytes: Bytes::Buffer(buffer),
            range,
        })
    }

    /// Returns how many bytes stay in memory as long as these do: the whole block or buffer.
    #[must_use]
    pub fn kept(&self) -> usize {
        match &self.bytes {
            Bytes::Buffer(buffer) => buffer.len(),
            Bytes::Block(block) => block.len(),
        }
    }

    /// Returns `range` of these bytes, or `None` if it is out of bounds.
    pub(crate) fn part(mut self, range: Range<usize>) -> Option<Self> {
        self.get(range.clone())?;
        let start = self.range.start;
        self.range = start + range.start..start + range.end;
        Some(self)
    }

    /// Returns `range` of `block`, or `None` if it is out of bounds.
    pub(crate) fn of_block(block: Arc<[u8]>, range: Range<usize>) -> Option<Self> {
        block.get(range.clone())?;
        Some(Self {
            bytes: Bytes::Block(block),
            range,
        })
    }
}

impl Default for Data {
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
        // The constructors have checked the range.
        &all[self.range.clone()]
    }
}

impl std::fmt::Debug for Data {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Data({} bytes)", self.len())
    }
}
