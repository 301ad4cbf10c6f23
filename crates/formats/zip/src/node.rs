use forerun_vfs::{Ownership, Timestamp};

use crate::method::Method;

#[derive(Clone, Debug)]
pub struct Node {
    /// Offset of the entry in the central directory; `None` for a directory that only paths name.
    pub entry: Option<u64>,
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    pub mtime: Timestamp,
    pub size: u64,
    pub data: Data,
}

/// Where the contents of a member are, and how they are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    /// Offset in the file of the local header, which precedes the contents.
    pub header: u64,
    /// Stored length of the contents.
    pub len: u64,
    /// Checksum of the decoded contents.
    pub crc: u32,
    pub method: Method,
}

impl Node {
    /// Creates a directory that no member describes.
    pub const fn directory(ownership: &Ownership) -> Self {
        Self {
            entry: None,
            mode: 0o777 & !ownership.directory_mask,
            uid: ownership.uid,
            gid: ownership.gid,
            mtime: Timestamp {
                seconds: 0,
                nanoseconds: 0,
            },
            size: 0,
            data: Data {
                header: 0,
                len: 0,
                crc: 0,
                method: Method::Stored,
            },
        }
    }
}
