//! Operations of a workload, by path.

use std::fmt;

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place(pub Vec<u8>);

impl Place {
    pub fn split(&self) -> (Self, &[u8]) {
        match self.0.iter().rposition(|&byte| byte == b'/') {
            Some(at) => (Self(self.0[..at].to_vec()), &self.0[at + 1..]),
            None => (Self(Vec::new()), &self.0),
        }
    }

    pub fn join(&self, name: &[u8]) -> Self {
        if self.0.is_empty() {
            return Self(name.to_vec());
        }
        Self([&self.0, &b"/"[..], name].concat())
    }

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

/// Formats a name, short enough to print.
pub(super) fn shown(name: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(name).chars().take(12).collect();
    if name.len() > 24 {
        format!("{text}...({} bytes)", name.len())
    } else {
        String::from_utf8_lossy(name).into_owned()
    }
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    Create(Place),
    Mkdir(Place),
    /// Appends, overwrites, or writes past the end. No other operation writes the same bytes.
    Write {
        file: Place,
        offset: u64,
        len: u64,
    },
    /// Sets a shorter or longer length.
    Truncate {
        file: Place,
        len: u64,
    },
    /// Renames, and replaces an existing node.
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

/// Generates the bytes that operation number `operation` writes to `offset..offset + len`. They are
/// unique and never zero, so that foreign bytes and unwritten bytes are detected.
pub(super) fn bytes(operation: u32, offset: u64, len: u64) -> Vec<u8> {
    let key = u64::from(operation).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let byte = |at: u64| {
        let mixed = (at ^ key).wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 32;
        u8::try_from(mixed % 251).expect("below 251") + 1
    };
    (offset..offset + len).map(byte).collect()
}
