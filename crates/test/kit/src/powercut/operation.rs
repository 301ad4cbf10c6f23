//! Operations of a workload, by path.

use std::fmt;

/// A path from the root, without a leading slash.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place(pub Vec<u8>);

impl Place {
    /// Splits a path into the directory and the name in it.
    pub fn split(&self) -> (Self, &[u8]) {
        match self.0.iter().rposition(|&byte| byte == b'/') {
            Some(at) => (Self(self.0[..at].to_vec()), &self.0[at + 1..]),
            None => (Self(Vec::new()), &self.0),
        }
    }

    /// Returns the path of `name` in this directory.
    pub fn join(&self, name: &[u8]) -> Self {
        if self.0.is_empty() {
            return Self(name.to_vec());
        }
        Self([&self.0, &b"/"[..], name].concat())
    }

    /// Iterates over the names of the path, in order.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        let names = self.0.split(|&byte| byte == b'/');
        names.filter(|name| !name.is_empty())
    }
}

impl From<&str> for Place {
    fn from(path: &str) -> Self {
        Self(path.as_bytes().to_vec())
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.names().map(shown).collect();
        write!(f, "{}", names.join("/"))
    }
}

/// Formats a name, short enough to be printed.
pub(super) fn shown(name: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(name).chars().take(12).collect();
    if name.len() > 24 {
        format!("{text}...({} bytes)", name.len())
    } else {
        String::from_utf8_lossy(name).into_owned()
    }
}

/// One call of the volume.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    Create(Place),
    Mkdir(Place),
    /// Append, overwrite, or growth behind the end: bytes that no other operation writes.
    Write {
        file: Place,
        offset: u64,
        len: u64,
    },
    /// A new length, shorter or longer.
    Truncate {
        file: Place,
        len: u64,
    },
    /// Another name, in the place of what has it.
    Rename {
        from: Place,
        to: Place,
    },
    Unlink(Place),
    Rmdir(Place),
    /// `fsync` of a file or directory.
    Sync(Place),
    /// `syncfs`.
    SyncAll,
}

impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create(at) => write!(f, "create {at:?}"),
            Self::Mkdir(at) => write!(f, "mkdir {at:?}"),
            Self::Write { file, offset, len } => write!(f, "write {file:?} {offset}+{len}"),
            Self::Truncate { file, len } => write!(f, "truncate {file:?} to {len}"),
            Self::Rename { from, to } => write!(f, "rename {from:?} to {to:?}"),
            Self::Unlink(at) => write!(f, "unlink {at:?}"),
            Self::Rmdir(at) => write!(f, "rmdir {at:?}"),
            Self::Sync(at) => write!(f, "fsync {at:?}"),
            Self::SyncAll => f.write_str("syncfs"),
        }
    }
}

/// Generates the bytes that operation number `operation` writes to `offset..offset + len`. They are its
/// own and never zero, so that bytes of others and bytes that were never written are noticed.
pub(super) fn bytes(operation: u32, offset: u64, len: u64) -> Vec<u8> {
    let key = u64::from(operation).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let byte = |at: u64| {
        let mixed = (at ^ key).wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 32;
        u8::try_from(mixed % 251).expect("below 251") + 1
    };
    (offset..offset + len).map(byte).collect()
}
