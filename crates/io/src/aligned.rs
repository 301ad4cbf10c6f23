//! Page-aligned memory, for reads and writes that bypass the page cache.

use std::ops::{Deref, DerefMut};

/// The alignment of memory and of file ranges for direct I/O: enough for every disk.
pub const ALIGNMENT: usize = 4096;

/// A byte buffer that starts on a page boundary. Grows and never shrinks.
#[derive(Debug, Default)]
pub struct AlignedBuffer {
    /// Longer than the contents, so that an aligned start fits in.
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBuffer {
    /// Creates an empty buffer, without an allocation.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            bytes: Vec::new(),
            start: 0,
            len: 0,
        }
    }

    /// Makes room for `len` bytes. The old contents may be lost.
    pub fn reserve(&mut self, len: usize) {
        if len <= self.len {
            return;
        }
        // The old bytes are not copied, because no caller needs them.
        self.bytes = vec![0; len + ALIGNMENT];
        // If `align_offset` cannot tell, the memory is not aligned. The buffer then works for
        // everything but direct I/O.
        let start = self.bytes.as_ptr().align_offset(ALIGNMENT);
        self.start = if start < ALIGNMENT { start } else { 0 };
        self.len = len;
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let end = self.start + self.len;
        &self.bytes[self.start..end]
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        let end = self.start + self.len;
        &mut self.bytes[self.start..end]
    }
}

pub fn is_aligned(bytes: &[u8]) -> bool {
    bytes.as_ptr().align_offset(ALIGNMENT) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn begins_on_a_page_at_every_length() {
        let mut buffer = AlignedBuffer::new();
        assert!(buffer.is_empty());
        for len in [1, 4095, 4096, 1 << 20, 5] {
            buffer.reserve(len);
            assert!(is_aligned(&buffer) && buffer.len() >= len, "{len}");
        }
        assert_eq!(buffer.len(), 1 << 20, "never shrinks");
    }
}
