//! Memory for data on its way, used again instead of given back.
//!
//! A fresh allocation of a megabyte costs more page faults than copying a megabyte costs time.

use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Free buffers, by need.
pub struct BufferPool {
    keep: usize,
    free: Mutex<Free>,
}

#[derive(Default)]
struct Free {
    bytes: usize,
    buffers: Vec<Vec<u8>>,
}

/// Bytes that go back to their pool when the last user drops them.
pub struct Buffer {
    bytes: Vec<u8>,
    pool: Weak<BufferPool>,
}

impl BufferPool {
    /// Keeps free buffers of at most `keep` bytes together.
    pub fn new(keep: usize) -> Arc<Self> {
        Arc::new(Self {
            keep,
            free: Mutex::default(),
        })
    }

    /// A buffer of exactly `len` initialised bytes, of no particular value.
    pub fn take(self: &Arc<Self>, len: usize) -> Buffer {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        // Not one far too large: a held slice would pin all of it.
        let fits = |bytes: &Vec<u8>| bytes.capacity() >= len && bytes.capacity() / 4 <= len;
        let found = free
            .buffers
            .iter()
            .rposition(fits)
            .map(|at| free.buffers.swap_remove(at));
        if let Some(bytes) = &found {
            free.bytes -= bytes.capacity();
        }
        drop(free);
        let mut bytes = found.unwrap_or_default();
        // Grows with zeros; what is already there was initialised by an earlier use.
        bytes.resize(len, 0);
        Buffer {
            bytes,
            pool: Arc::downgrade(self),
        }
    }
}

impl Buffer {
    /// The bytes, to be filled.
    pub fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        let Some(pool) = self.pool.upgrade() else {
            return;
        };
        let mut free = pool.free.lock().unwrap_or_else(PoisonError::into_inner);
        if bytes.capacity() >= 4096 && free.bytes + bytes.capacity() <= pool.keep {
            free.bytes += bytes.capacity();
            free.buffers.push(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_buffer_is_used_again() {
        let pool = BufferPool::new(1 << 20);
        let first = pool.take(100_000);
        let address = first.as_ptr();
        drop(first);
        let second = pool.take(90_000);
        assert_eq!((second.as_ptr(), second.len()), (address, 90_000));
        assert_ne!(pool.take(90_000).as_ptr(), address);
    }

    #[test]
    fn free_buffers_are_bounded() {
        let pool = BufferPool::new(10_000);
        let held: Vec<_> = (0..10).map(|_| pool.take(4096)).collect();
        drop(held);
        assert_eq!(pool.free.lock().unwrap().buffers.len(), 2);
    }
}
