//! Limits the memory of a writer.
//!
//! The contents in flight use at most an eighth of the limit, the encoders of all threads at most a
//! quarter. The tables of the tree grow with the number of nodes, and a source image has a cache.
//! If these leave little, less content is in flight and fewer threads encode.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use forerun_io::{u64_from, usize_from};
use forerun_sys::memory_limit::{MemoryLimit, Mib, with_block_buffers};

use super::ParallelBounds;
use super::tree::{BuildError, Tree};

/// Bytes of contents in flight with ample memory, and with the least memory.
const CONTENTS: u64 = 64 << 20;
const LEAST_CONTENTS: u64 = 2 << 20;
/// Memory of every writer: the program, its threads and buffers.
const WRITER: u64 = 8 << 20;
/// Memory per node of a tree: names, attributes, hashes and offsets. Measured for 83,000 nodes: 450
/// bytes for romfs, 560 for SquashFS, 700 for exFAT, 700 for compressed EROFS.
const NODE: u64 = 768;

/// `f_type` of filesystems that keep their files in memory: tmpfs and ramfs.
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58F6];

/// The memory that a writer needs in addition to the contents in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriterNeeds {
    /// Name of the codec, for messages; `None` if nothing is encoded.
    pub codec: Option<&'static str>,
    pub each: u64,
    pub nodes: usize,
}

impl WriterNeeds {
    /// Returns the number of encoding threads and the bytes of contents in flight. Values of 0 in
    /// `asked` become one thread per CPU and 64 MiB, if the memory of the process allows that. Logs
    /// the result, with a warning if `asked` exceeds the memory that the process may use. Fails if
    /// not even one encoder fits.
    pub fn bounds(&self, asked: ParallelBounds) -> Result<ParallelBounds, BuildError> {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        self.bounds_within(MemoryLimit::of_process(), asked, cpus)
    }

    fn bounds_within(
        &self,
        limit: &MemoryLimit,
        asked: ParallelBounds,
        cpus: usize,
    ) -> Result<ParallelBounds, BuildError> {
        let usable = limit.usable();
        // Contents can wait until others are written, but an encoder needs all of its memory at
        // once.
        if let (Some(codec), true) = (self.codec, self.each + WRITER > usable) {
            return Err(BuildError::Memory {
                codec,
                encoder: self.each,
                beside: WRITER,
                limit: limit.clone(),
            });
        }
        // Memory of the cache of a source image.
        let image = with_block_buffers(limit.block_cache());
        let beside = of_tree(self.nodes) + image;
        let room = usable.saturating_sub(beside);
        let memory = match asked.memory {
            0 => usize_from(limit.eighth(CONTENTS).min((room / 2).max(LEAST_CONTENTS))),
            asked => asked,
        };
        let room = room.saturating_sub(u64_from(memory)).min(limit.bytes() / 4);
        let threads = match asked.threads {
            0 => cpus.min(usize_from(room / self.each.max(1)).max(1)),
            asked => asked,
        };
        let encoders = self.each.saturating_mul(u64_from(threads));
        tracing::info!(
            "memory: {threads} threads and {} of contents, of {limit}",
            Mib(u64_from(memory))
        );
        if asked.threads > 0 && encoders > room {
            tracing::warn!(
                "encoders of {threads} threads may need {}, together with the rest more than four fifths of {limit}: the process may be killed",
                Mib(encoders),
            );
        }
        Ok(ParallelBounds { threads, memory })
    }
}

/// Logs a warning if a tree needs more memory than the process may use.
pub fn warn_of_large_tree(tree: &Tree) {
    let (limit, nodes) = (MemoryLimit::of_process(), tree.len());
    let needed = of_tree(nodes);
    if needed > limit.usable() {
        tracing::warn!(
            "a tree of {nodes} entries may take {}, which is more than four fifths of {limit}: the \
             process may be killed",
            Mib(needed)
        );
    }
}

/// Returns the memory of a writer and a tree of `nodes` nodes.
fn of_tree(nodes: usize) -> u64 {
    u64_from(nodes) * NODE + WRITER
}

/// Creates a temporary file without a name in [`spool_dir`].
pub fn spool_file() -> io::Result<File> {
    tempfile::tempfile_in(spool_dir())
}

/// Returns the directory for temporary files: `TMPDIR`, or `/tmp`. If the memory of the process is
/// limited and `/tmp` keeps its files in memory, returns `/var/tmp`, because files in memory count
/// against the limit of a control group.
#[must_use]
pub fn spool_dir() -> PathBuf {
    let usual = std::env::temp_dir();
    let is_asked_for = std::env::var_os("TMPDIR").is_some();
    if is_asked_for || !MemoryLimit::of_process().is_imposed() || !is_in_memory(&usual) {
        return usual;
    }
    let persistent = PathBuf::from("/var/tmp");
    if persistent.is_dir() && !is_in_memory(&persistent) {
        persistent
    } else {
        usual
    }
}

/// Returns whether the filesystem of a directory keeps its files in memory.
#[must_use]
pub fn is_in_memory(dir: &Path) -> bool {
    let kind = rustix::fs::statfs(dir).map(|found| found.f_type);
    // The values have 32 bits; the kernel's type for them is signed, or longer.
    kind.is_ok_and(|kind| {
        IN_MEMORY
            .iter()
            .any(|&known| i128::from(kind) == i128::from(known))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Checks the number of threads and the MiB of contents on 16 CPUs.
    fn check(limit: u64, needs: (u64, usize), asked: usize, expected: Option<(usize, u64)>) {
        let limit = MemoryLimit::of_machine(limit * MIB);
        let (each, nodes) = needs;
        let needs = WriterNeeds {
            codec: Some("xz"),
            each,
            nodes,
        };
        let asked = ParallelBounds {
            threads: asked,
            memory: 0,
        };
        let bounds = needs.bounds_within(&limit, asked, 16).ok();
        let found = bounds.map(|bounds| (bounds.threads, u64_from(bounds.memory) / MIB));
        assert_eq!(found, expected, "{limit} {needs:?}");
    }

    #[test]
    fn threads_and_contents_follow_the_memory() {
        // With ample memory, one thread per CPU.
        check(24 << 10, (2 * MIB, 83_000), 0, Some((16, 64)));
        check(24 << 10, (100 * MIB, 83_000), 0, Some((16, 64)));
        // Encoders get a quarter of the memory.
        check(128, (MIB, 0), 0, Some((16, 16)));
        check(128, (3 * MIB, 0), 0, Some((10, 16)));
        check(128, (13 * MIB, 0), 0, Some((2, 16)));
        // A large tree leaves fewer threads, but at least one.
        check(128, (3 * MIB, 50_000), 0, Some((7, 16)));
        check(128, (3 * MIB, 83_000), 0, Some((2, 7)));
        check(64, (3 * MIB, 83_000), 0, Some((1, 2)));
        check(64, (64 << 10, 1_000_000), 0, Some((1, 2)));
        // A number that the user gives is not changed.
        check(128, (13 * MIB, 0), 8, Some((8, 16)));
        // Not even one encoder fits.
        check(64, (49 * MIB, 0), 0, None);
        check(64, (49 * MIB, 0), 1, None);
        check(128, (49 * MIB, 0), 0, Some((1, 16)));
    }

    #[test]
    fn an_error_names_the_numbers() {
        let needs = WriterNeeds {
            codec: Some("lzma"),
            each: 49 * MIB,
            nodes: 4,
        };
        let asked = ParallelBounds {
            threads: 0,
            memory: 5,
        };
        let limit = MemoryLimit::of_machine(64 * MIB);
        let error = needs.bounds_within(&limit, asked, 2).unwrap_err();
        assert_eq!(
            error.to_string(),
            "one lzma encoder needs 49 MiB in addition to 8 MiB: more than four fifths of the limit \
             of 64 MiB by this machine"
        );
        // Stored contents need no encoder.
        let plain = WriterNeeds {
            codec: None,
            ..needs
        };
        let bounds = plain.bounds_within(&limit, asked, 2).unwrap();
        assert_eq!((bounds.threads, bounds.memory), (1, 5));
    }
}
