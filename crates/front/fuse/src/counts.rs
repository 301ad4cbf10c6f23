//! Counts the kernel's requests by kind.
//!
//! A request that is not sent costs nothing, so tests assert on these counts in addition to the
//! engine's counters.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! operations {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        #[allow(missing_docs)] // Named as the protocol names them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Operation {
            $($(#[$doc])* $variant,)*
        }

        impl Operation {
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns the protocol's name in lower case.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

operations! {
    Lookup = "lookup",
    Forget = "forget",
    Getattr = "getattr",
    Readlink = "readlink",
    Open = "open",
    Read = "read",
    Release = "release",
    Flush = "flush",
    Opendir = "opendir",
    Readdir = "readdir",
    Readdirplus = "readdirplus",
    Releasedir = "releasedir",
    Statfs = "statfs",
    Getxattr = "getxattr",
    Listxattr = "listxattr",
    Access = "access",
    Fsync = "fsync",
    Lseek = "lseek",
    /// Any request that would change the filesystem.
    Write = "write",
    /// Requests without use for images: locks, ioctls, polls, block maps.
    Other = "other",
    /// Not a request: data pushed into the page cache.
    Store = "store",
    /// Not a separate request: a request taken while its sender is being followed to its CPU.
    Followed = "followed",
}

#[derive(Debug)]
pub struct Counts {
    values: Vec<AtomicU64>,
}

impl Default for Counts {
    fn default() -> Self {
        Self {
            values: Operation::ALL.iter().map(|_| AtomicU64::new(0)).collect(),
        }
    }
}

impl Counts {
    pub fn add(&self, operation: Operation) {
        if let Some(value) = self.values.get(index(operation)) {
            value.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub fn snapshot(&self) -> RequestCounts {
        let load = |value: &AtomicU64| value.load(Ordering::Relaxed);
        RequestCounts {
            values: self.values.iter().map(load).collect(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestCounts {
    values: Vec<u64>,
}

impl RequestCounts {
    #[must_use]
    pub fn get(&self, operation: Operation) -> u64 {
        self.values.get(index(operation)).copied().unwrap_or(0)
    }

    /// Iterates over the kinds with nonzero counts.
    pub fn iter(&self) -> impl Iterator<Item = (Operation, u64)> + '_ {
        let all = Operation::ALL.iter().map(|&kind| (kind, self.get(kind)));
        all.filter(|(_, count)| *count > 0)
    }
}

impl fmt::Display for RequestCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (operation, count) in self.iter() {
            let name = format!("fuse_{}", operation.name());
            writeln!(f, "{name:<24}{count:>16}")?;
        }
        Ok(())
    }
}

#[allow(clippy::as_conversions)] // The discriminants are 0..ALL.len() by construction.
const fn index(operation: Operation) -> usize {
    operation as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_in_its_place() {
        let counts = Counts::default();
        for (n, &operation) in Operation::ALL.iter().enumerate() {
            assert_eq!(index(operation), n);
        }
        counts.add(Operation::Read);
        counts.add(Operation::Store);
        counts.add(Operation::Read);
        let now = counts.snapshot();
        assert_eq!(now.get(Operation::Read), 2);
        assert_eq!(now.iter().count(), 2);
        assert!(now.to_string().contains("fuse_read "));
    }
}
