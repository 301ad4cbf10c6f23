//! Buffers for data, reused instead of freed, because the page faults of a fresh megabyte take
//! longer than copying a megabyte.
//!
//! Long buffers are mappings of their own. The allocator of the C library keeps what a thread frees
//! in an arena for that thread, and many threads decode: a mount with a cache of 16 MiB took 137
//! MiB to read blocks of 1 MiB with eight readers, of which the allocator held 80.

use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, Weak};

use forerun_io::Unpoisoned;
use memmap2::{Advice, MmapMut, MmapOptions};

/// Shortest buffer that is a mapping of its own.
const MAPPED: usize = 64 << 10;
/// Shortest buffer with huge pages: the length of one huge page on most machines. In a direct read,
/// a disk fills 4 MiB of them in little more than half the time that a thousand small pages take;
/// copies from the page cache are faster too (docs/decisions/02-direct-io.md).
const HUGE: usize = 2 << 20;

pub struct BufferPool {
    keep: usize,
    free: Mutex<Free>,
}

#[derive(Default)]
struct Free {
    bytes: usize,
    buffers: Vec<Memory>,
}

enum Memory {
    Heap(Vec<u8>),
    /// Starts on a page boundary.
    Mapped(MmapMut),
}

impl Memory {
    fn new(len: usize) -> Self {
        // If the system gives no mapping, the allocator may still have memory.
        let mapped = (len >= MAPPED).then(|| map(len).ok());
        match mapped.flatten() {
            Some(mapped) => Self::Mapped(mapped),
            None => Self::Heap(vec![0; len]),
        }
    }
}

/// Maps `len` bytes and populates them: they will all be filled, and one system call takes less
/// time than a fault per page.
fn map(len: usize) -> io::Result<MmapMut> {
    let mut options = MmapOptions::new();
    options.len(len);
    if len < HUGE {
        return options.populate().map_anon();
    }
    let mapped = options.map_anon()?;
    let _kernel_without_huge_pages = mapped.advise(Advice::HugePage);
    let _before_linux_5_14 = mapped.advise(Advice::PopulateWrite);
    Ok(mapped)
}

impl Default for Memory {
    fn default() -> Self {
        Self::Heap(Vec::new())
    }
}

impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Heap(bytes) => bytes,
            Self::Mapped(bytes) => bytes,
        }
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Heap(bytes) => bytes,
            Self::Mapped(bytes) => bytes,
        }
    }
}

/// Bytes that return to their pool when the last user drops them.
///
/// Long buffers start on a page boundary, so that direct reads can fill them. If the system gives
/// no mapping, the allocator's memory may start elsewhere; reads then go through the page cache.
pub struct Buffer {
    bytes: Memory,
    len: usize,
    pool: Weak<BufferPool>,
}

impl BufferPool {
    /// Creates a pool that keeps at most `keep` bytes in free buffers.
    pub fn new(keep: usize) -> Arc<Self> {
        Arc::new(Self {
            keep,
            free: Mutex::default(),
        })
    }

    /// Returns a buffer of exactly `len` bytes, initialised but of no particular value.
    pub fn take(self: &Arc<Self>, len: usize) -> Buffer {
        let mut free = self.free.lock().unpoisoned();
        // Do not take a buffer that is far too large: a slice of it would pin all of it.
        let fits = |bytes: &Memory| bytes.len() >= len && bytes.len() / 4 <= len;
        let found = free
            .buffers
            .iter()
            .rposition(fits)
            .map(|at| free.buffers.swap_remove(at));
        if let Some(bytes) = &found {
            free.bytes -= bytes.len();
        }
        drop(free);
        // Free buffers were initialised by an earlier use.
        let bytes = found.unwrap_or_else(|| Memory::new(len));
        Buffer {
            bytes,
            len,
            pool: Arc::downgrade(self),
        }
    }
}

impl Buffer {
    pub fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        let Some(pool) = self.pool.upgrade() else {
            return;
        };
        let mut free = pool.free.lock().unpoisoned();
        if bytes.len() >= 4096 && free.bytes + bytes.len() <= pool.keep {
            free.bytes += bytes.len();
            free.buffers.push(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use forerun_io::{ALIGNMENT, LEAST_DIRECT};

    use super::*;

    #[test]
    fn long_buffers_ask_for_huge_pages() {
        let pool = BufferPool::new(10 << 20);
        let may_have = Path::new("/sys/kernel/mm/transparent_hugepage").exists();
        for (len, expected) in [(HUGE - 1, false), (HUGE, may_have), (4 << 20, may_have)] {
            let buffer = pool.take(len);
            let at = buffer.as_ptr().addr();
            let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
            let mut flags = None;
            let mut is_here = false;
            for line in smaps.lines() {
                let mut words = line.split_whitespace();
                let first = words.next().unwrap();
                if let Some((start, end)) = first.split_once('-') {
                    let [start, end] =
                        [start, end].map(|at| usize::from_str_radix(at, 16).unwrap());
                    is_here = (start..end).contains(&at);
                } else if is_here && first == "VmFlags:" {
                    flags = Some(words.any(|flag| flag == "hg"));
                }
            }
            assert_eq!(flags, Some(expected), "{len}");
        }
    }

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
    fn long_buffers_begin_on_a_page_also_when_used_again() {
        let pool = BufferPool::new(10 << 20);
        for len in [LEAST_DIRECT, 3 << 20, LEAST_DIRECT + 1, 2 << 20] {
            let buffer = pool.take(len);
            assert_eq!(buffer.as_ptr().align_offset(ALIGNMENT), 0, "{len}");
            assert_eq!(buffer.len(), len);
        }
    }

    #[test]
    fn free_buffers_are_bounded() {
        let pool = BufferPool::new(10_000);
        let held: Vec<_> = (0..10).map(|_| pool.take(4096)).collect();
        drop(held);
        assert_eq!(pool.free.lock().unwrap().buffers.len(), 2);
    }
}
