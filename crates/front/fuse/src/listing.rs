//! The answer to READDIRPLUS.
//!
//! The protocol lets a server leave out the attributes of an entry: the kernel then makes no inode
//! for it. `fuser` cannot write such entries, because their node ID is 0 and their inode number is
//! not. So this module writes the answer itself.

use std::ffi::OsStr;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{Errno, FileAttr, FileType, Generation, ReplyDirectoryPlus, RequestId};

use crate::attr;
use crate::directory::ListedEntry;
use crate::listers::Attributes;

/// Bytes of the header of an answer.
const HEADER: usize = 16;
/// Bytes of `fuse_entry_out`: what the kernel needs for an inode.
const ENTRY_OUT: usize = 128;

/// An answer that is being filled.
pub struct Listing {
    reply: ReplyDirectoryPlus,
    attributes: Attributes,
    /// Number of files in it.
    pub files: u64,
    /// Number of files without attributes in it.
    pub without: usize,
    /// The answer, unless all entries have attributes.
    names: Option<Names>,
}

struct Names {
    connection: Arc<OwnedFd>,
    request: RequestId,
    entries: Vec<u8>,
}

impl Listing {
    /// Begins an answer. Without a connection, all entries get attributes.
    pub fn new(
        reply: ReplyDirectoryPlus,
        attributes: Attributes,
        (connection, request): (Option<Arc<OwnedFd>>, RequestId),
    ) -> Self {
        let connection = connection.filter(|_| attributes != Attributes::All);
        let names = connection.map(|connection| Names {
            connection,
            request,
            entries: Vec::new(),
        });
        Self {
            reply,
            attributes,
            files: 0,
            without: 0,
            names,
        }
    }

    /// Returns whether the next entry gets attributes.
    pub fn wants_attributes(&self, entry: &ListedEntry) -> bool {
        self.names.is_none()
            || entry.kind == FileType::Directory
            || self.attributes.has_file(self.without)
    }

    /// Adds an entry. With attributes, the kernel may keep them for the time given. Returns true if
    /// the answer is full.
    pub fn add(&mut self, entry: &ListedEntry, known: Option<(FileAttr, Duration)>) -> bool {
        let is_file = entry.kind != FileType::Directory;
        let has_attributes = known.is_some();
        let (attr, ttl) =
            known.unwrap_or_else(|| (attr::unknown(entry.number, entry.kind), Duration::ZERO));
        // `fuser` counts the room, which only it knows.
        let name = OsStr::from_bytes(&entry.name);
        let node = attr.ino;
        if self
            .reply
            .add(node, entry.cookie, name, &ttl, &attr, Generation(0))
        {
            return true;
        }
        if let Some(names) = &mut self.names {
            names.add(entry, has_attributes.then_some((&attr, ttl)));
            self.without += usize::from(is_file && !has_attributes);
        }
        self.files += u64::from(is_file);
        false
    }

    pub fn send(self) {
        let Some(names) = self.names else {
            return self.reply.ok();
        };
        if let Err(error) = names.send() {
            tracing::debug!("answering a READDIRPLUS: {error}");
        }
        // The kernel takes only the first answer.
        self.reply.error(Errno::EIO);
    }

    pub fn fail(self, error: Errno) {
        self.reply.error(error);
    }
}

impl Names {
    fn add(&mut self, entry: &ListedEntry, known: Option<(&FileAttr, Duration)>) {
        let at = self.entries.len();
        if let Some((attr, ttl)) = known {
            // Node ID, generation, and how long the entry and the attributes are valid.
            let (node, seconds) = (attr.ino.0, ttl.as_secs());
            let head = [node, 0, seconds, seconds, 0].map(u64::to_ne_bytes);
            self.entries.extend_from_slice(head.as_flattened());
            attributes(&mut self.entries, attr);
        } else {
            self.entries.resize(at + ENTRY_OUT, 0);
        }
        let numbers = [entry.number, entry.cookie].map(u64::to_ne_bytes);
        self.entries.extend_from_slice(numbers.as_flattened());
        // The name was listed by a driver, whose names are at most 65,535 bytes long.
        let name_len = u32::try_from(entry.name.len()).unwrap_or_default();
        let lengths = [name_len, mode_of(entry.kind) >> 12].map(u32::to_ne_bytes);
        self.entries.extend_from_slice(lengths.as_flattened());
        self.entries.extend_from_slice(&entry.name);
        let len = (self.entries.len() - at).next_multiple_of(8);
        self.entries.resize(at + len, 0);
    }

    fn send(&self) -> io::Result<()> {
        let len = HEADER + self.entries.len();
        let len = u32::try_from(len).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        // The second word is the error, none.
        let mut header = [len, 0].map(u32::to_ne_bytes).concat();
        header.extend_from_slice(&self.request.0.to_ne_bytes());
        let parts = [IoSlice::new(&header), IoSlice::new(&self.entries)];
        rustix::io::writev(self.connection.as_fd(), &parts)?;
        Ok(())
    }
}

/// Appends `fuse_attr`.
fn attributes(bytes: &mut Vec<u8>, attr: &FileAttr) {
    let times = [attr.atime, attr.mtime, attr.ctime].map(split);
    let numbers = [attr.ino.0, attr.size, attr.blocks];
    bytes.extend_from_slice(numbers.map(u64::to_ne_bytes).as_flattened());
    bytes.extend_from_slice(
        times
            .map(|(seconds, _)| seconds.to_ne_bytes())
            .as_flattened(),
    );
    bytes.extend_from_slice(times.map(|(_, rest)| rest.to_ne_bytes()).as_flattened());
    let mode = mode_of(attr.kind) | u32::from(attr.perm);
    let words = [
        mode,
        attr.nlink,
        attr.uid,
        attr.gid,
        attr.rdev,
        attr.blksize,
        0,
    ];
    bytes.extend_from_slice(words.map(u32::to_ne_bytes).as_flattened());
}

/// Splits a time into seconds and nanoseconds since 1970.
fn split(time: SystemTime) -> (i64, u32) {
    let seconds = |time: Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (seconds(after), after.subsec_nanos()),
        Err(before) => {
            let before = before.duration();
            match before.subsec_nanos() {
                0 => (-seconds(before), 0),
                rest => (-seconds(before) - 1, 1_000_000_000 - rest),
            }
        }
    }
}

const fn mode_of(kind: FileType) -> u32 {
    match kind {
        FileType::NamedPipe => 0o010_000,
        FileType::CharDevice => 0o020_000,
        FileType::Directory => 0o040_000,
        FileType::BlockDevice => 0o060_000,
        FileType::RegularFile => 0o100_000,
        FileType::Symlink => 0o120_000,
        FileType::Socket => 0o140_000,
    }
}
