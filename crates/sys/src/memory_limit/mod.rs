//! How much memory this process may use. Every default follows this limit.
//!
//! The limit is the lowest of the machine's memory, the limits of the process's control groups, and
//! its own resource limits. The kernel kills a process that exceeds a control group's limit, and
//! throttles one above `memory.high` until it hardly runs; beyond a resource limit, allocations
//! fail. So each kind of memory takes a fixed share of the limit, and all of them together stay
//! below [`MemoryLimit::usable`].
//!
//! The limits are read once, when a default is first needed. Nothing here allocates, frees or
//! measures memory, and options that the user gives are not changed.

mod cgroup;

use std::fmt;
use std::path::PathBuf;
use std::sync::OnceLock;

use rustix::process::{Resource, getrlimit};

use crate::threads;

/// Memory besides caches, buffers and encoders: the program itself, the tables of a tree of 78,000
/// files, and freed memory that the allocator keeps. Measured in mounts: 20 to 35 MB.
const BESIDE: u64 = 32 << 20;

/// The memory that this process may use, and what sets the limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    bytes: u64,
    set_by: SetBy,
}

/// The origin of a [`MemoryLimit`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SetBy {
    /// The memory of the machine.
    Machine,
    /// A control group, with the file that holds the limit.
    Cgroup(PathBuf),
    /// `RLIMIT_AS` (`ulimit -v`).
    AddressSpace,
    /// `RLIMIT_DATA` (`ulimit -d`).
    DataSegment,
}

impl MemoryLimit {
    /// Returns the limit of this process, as it was at the first call.
    #[must_use]
    pub fn of_process() -> &'static Self {
        static LIMIT: OnceLock<MemoryLimit> = OnceLock::new();
        LIMIT.get_or_init(|| Self::least_of(machine(), cgroup::limit_of_process(), resources()))
    }

    /// Creates a limit of `bytes` that the machine sets.
    #[must_use]
    pub const fn of_machine(bytes: u64) -> Self {
        Self {
            bytes,
            set_by: SetBy::Machine,
        }
    }

    fn least_of(
        machine: u64,
        cgroup: Option<(u64, PathBuf)>,
        resources: impl IntoIterator<Item = (u64, SetBy)>,
    ) -> Self {
        let cgroup = cgroup.map(|(bytes, file)| (bytes, SetBy::Cgroup(file)));
        let limits = cgroup.into_iter().chain(resources);
        limits.fold(Self::of_machine(machine), |least, (bytes, set_by)| {
            if bytes < least.bytes {
                Self { bytes, set_by }
            } else {
                least
            }
        })
    }

    /// Returns the limit in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns what sets the limit.
    #[must_use]
    pub const fn set_by(&self) -> &SetBy {
        &self.set_by
    }

    /// Returns whether anything but the size of the machine sets the limit.
    #[must_use]
    pub fn is_imposed(&self) -> bool {
        self.set_by != SetBy::Machine
    }

    /// Returns how many bytes the process may use in total: four fifths of the limit.
    #[must_use]
    pub const fn usable(&self) -> u64 {
        self.bytes / 5 * 4
    }

    /// Returns `default`, or an eighth of the limit if that is less.
    #[must_use]
    pub fn eighth(&self, default: u64) -> u64 {
        default.min(self.bytes / 8)
    }

    /// Default bytes in the cache of an image's blocks if memory is not scarce.
    pub const BLOCK_CACHE: u64 = 256 << 20;

    /// Returns the default size of the cache of an image's blocks, in bytes: 256 MiB, or an eighth
    /// of the limit if that is less.
    #[must_use]
    pub fn block_cache(&self) -> u64 {
        self.eighth(Self::BLOCK_CACHE)
    }

    /// Returns how many of `wanted` items of `each` bytes fit into an eighth of the limit, but at
    /// least one.
    #[must_use]
    pub fn fitting(&self, wanted: usize, each: u64) -> usize {
        let most = self.bytes / 8 / each.max(1);
        wanted.min(usize::try_from(most.max(1)).unwrap_or(wanted))
    }

    /// Returns how many threads of `each` bytes to start: one per CPU, as far as they fit into an
    /// eighth of the limit, but at least one.
    #[must_use]
    pub fn threads(&self, each: u64) -> usize {
        self.fitting(threads::parallelism(), each)
    }

    /// Returns whether `bytes` that the user asked for, and the other memory that the process
    /// needs, are more than [`usable`](Self::usable).
    #[must_use]
    pub const fn is_exceeded_by(&self, bytes: u64) -> bool {
        bytes.saturating_add(BESIDE) > self.usable()
    }
}

impl fmt::Display for MemoryLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} by {}", Mib(self.bytes), self.set_by)
    }
}

impl fmt::Display for SetBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine => f.write_str("this machine"),
            Self::Cgroup(file) => write!(f, "{}", file.display()),
            Self::AddressSpace => f.write_str("ulimit -v"),
            Self::DataSegment => f.write_str("ulimit -d"),
        }
    }
}

/// Bytes, printed in MiB with at most one decimal.
#[derive(Clone, Copy, Debug)]
pub struct Mib(pub u64);

impl fmt::Display for Mib {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, tenths) = (self.0 >> 20, (self.0 % (1 << 20) * 10) >> 20);
        match tenths {
            0 => write!(f, "{whole} MiB"),
            _ => write!(f, "{whole}.{tenths} MiB"),
        }
    }
}

fn machine() -> u64 {
    let info = rustix::system::sysinfo();
    let unit = u64::from(info.mem_unit.max(1));
    match info.totalram * unit {
        0 => u64::MAX,
        bytes => bytes,
    }
}

fn resources() -> impl Iterator<Item = (u64, SetBy)> {
    [
        (Resource::As, SetBy::AddressSpace),
        (Resource::Data, SetBy::DataSegment),
    ]
    .into_iter()
    .filter_map(|(resource, set_by)| Some((getrlimit(resource).current?, set_by)))
}

/// Returns the memory that a cache of `cache` bytes takes, including the buffers that are kept for
/// reuse.
#[must_use]
pub const fn with_block_buffers(cache: u64) -> u64 {
    cache.saturating_add(cache / 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_holds() {
        let file = || PathBuf::from("/sys/fs/cgroup/memory.max");
        let space = (300, SetBy::AddressSpace);
        let data = (200, SetBy::DataSegment);
        for (cgroup, resources, expected) in [
            (None, vec![], (1000, SetBy::Machine)),
            (Some((1000, file())), vec![], (1000, SetBy::Machine)),
            (Some((999, file())), vec![], (999, SetBy::Cgroup(file()))),
            (Some((999, file())), vec![space.clone()], space.clone()),
            (
                Some((250, file())),
                vec![space.clone()],
                (250, SetBy::Cgroup(file())),
            ),
            (None, vec![space, data.clone()], data),
        ] {
            let limit = MemoryLimit::least_of(1000, cgroup, resources);
            assert_eq!((limit.bytes(), limit.set_by().clone()), expected);
            assert_eq!(limit.is_imposed(), limit.set_by != SetBy::Machine);
        }
    }

    #[test]
    fn shares_of_small_and_large_memories() {
        const MIB: u64 = 1 << 20;
        for (bytes, usable, cache, threads) in [
            (24 << 30, 20_615_843_020, 256 * MIB, 64),
            (2 << 30, 1_717_986_916, 256 * MIB, 64),
            (1 << 30, 858_993_456, 128 * MIB, 32),
            (128 * MIB, 107_374_180, 16 * MIB, 4),
            (64 * MIB, 53_687_088, 8 * MIB, 2),
            (16 * MIB, 13_421_772, 2 * MIB, 1),
            (0, 0, 0, 1),
        ] {
            let limit = MemoryLimit::of_machine(bytes);
            assert_eq!(limit.usable(), usable, "{bytes}");
            assert_eq!(limit.eighth(256 * MIB), cache, "{bytes}");
            assert_eq!(limit.fitting(64, 4 * MIB), threads, "{bytes}");
        }
    }

    #[test]
    fn what_exceeds_the_limit() {
        let limit = MemoryLimit::of_machine(128 << 20);
        assert!(!limit.is_exceeded_by(64 << 20));
        assert!(limit.is_exceeded_by(80 << 20));
        assert!(MemoryLimit::of_machine(0).is_exceeded_by(0));
    }

    #[test]
    fn this_process_has_a_limit() {
        let limit = MemoryLimit::of_process();
        assert!(limit.bytes() > 1 << 20 && limit.bytes() <= machine());
    }

    #[test]
    fn the_text_names_what_sets_the_limit() {
        let limit = MemoryLimit::least_of(1 << 30, Some((128 << 20, "/c/memory.max".into())), []);
        assert_eq!(limit.to_string(), "128 MiB by /c/memory.max");
        let limit = MemoryLimit::of_machine(24 << 30);
        assert_eq!(limit.to_string(), "24576 MiB by this machine");
        assert_eq!(Mib(3 << 19).to_string(), "1.5 MiB");
        assert_eq!(Mib(u64::MAX).to_string(), "17592186044415.9 MiB");
    }
}
