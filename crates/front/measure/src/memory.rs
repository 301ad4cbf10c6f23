//! Memory at hand, so that no run waits until a host gives some.

use forerun_io::{MemoryLimit, saturating_usize};
use memmap2::{Advice, MmapMut};
use rustix::system::sysinfo;

/// Bytes that a run finds at hand, where that is little for the machine: what reading the largest file of a bench
/// allocates.
const AT_HAND: u64 = 3 << 30;
/// The part of the free memory (one in so many) that is used at most.
const SHARE: u64 = 4;

/// Uses memory once, and frees it: what is allocated next is that.
///
/// A virtual machine gives its host what is free for about two seconds (free page reporting of the balloon), and asks
/// for it again page by page when it is used. Reading 250 MB into the page cache took 0.09 s with memory that had been
/// used just before, and 0.45 s with other memory, whichever program read.
pub fn have_at_hand() {
    let system = sysinfo();
    let free = u64::from(system.mem_unit).saturating_mul(system.freeram);
    let len = used_once(MemoryLimit::of_process(), free);
    // Without it, runs are only noisier.
    if let Ok(map) = MmapMut::map_anon(saturating_usize(len)) {
        let _in_smaller_pages = map.advise(Advice::HugePage);
        let _before_linux_5_14 = map.advise(Advice::PopulateWrite);
    }
}

/// Returns how many of `free` bytes a process with that limit uses.
fn used_once(limit: &MemoryLimit, free: u64) -> u64 {
    limit.eighth(AT_HAND).min(free / SHARE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_the_limit_nor_what_is_free_is_used_up() {
        const GIB: u64 = 1 << 30;
        for (limit, free, expected) in [
            (64 * GIB, 60 * GIB, 3 * GIB),
            (64 * GIB, 4 * GIB, GIB),
            (GIB, 60 * GIB, GIB / 8),
            (0, 60 * GIB, 0),
            (64 * GIB, 0, 0),
        ] {
            let limit = MemoryLimit::of_machine(limit);
            assert_eq!(used_once(&limit, free), expected, "{limit} {free}");
        }
    }
}
