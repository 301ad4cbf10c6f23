//! How many layers are read and decoded at once.

use forerun_io::{MemoryLimit, usize_from};

/// Most layers that are opened at once. They wait for a server more than for a CPU.
const AT_ONCE: u64 = 8;
/// Memory that opening a layer takes beside its tree: buffers, and the window of its decoder.
const MEMORY: u64 = 16 << 20;

/// Returns how many layers may be read at once.
pub fn at_once() -> usize {
    let fits = MemoryLimit::of_process().eighth(AT_ONCE * MEMORY) / MEMORY;
    usize_from(fits).max(1)
}
