//! Answers to READDIR and READDIRPLUS.

use std::ops::ControlFlow;

use forerun_io::usize_from;
use forerun_vfs::{DirCursor, DirEntry, FileSystem, NodeId, Result};
use zerocopy::IntoBytes;

use super::numbers::{Numbers, kind_bits};
use super::protocol::{Dirent, EntryOut};
use super::server::entry;
use crate::contents::Contents;

/// Offsets of `.` and `..`; the driver's offsets are shifted by two.
const DOTS: [(u64, &[u8]); 2] = [(0, b"."), (1, b"..")];

pub struct Listing<'l> {
    pub contents: &'l Contents,
    pub numbers: Numbers,
    /// Whether the answer includes each entry's attributes (READDIRPLUS).
    pub plus: bool,
    pub room: u32,
}

impl Listing<'_> {
    /// Appends entries of `dir`, from offset `from`, as many as fit.
    pub fn list(&self, dir: NodeId, from: u64, out: &mut Vec<u8>) -> Result<()> {
        let number = self.numbers.number(dir);
        for (at, name) in DOTS.iter().filter(|(at, _)| *at >= from) {
            // The kernel substitutes the inode number of `..`.
            let fits = self.push(number, at + 1, 4, name, &EntryOut::default(), out);
            if fits.is_break() {
                return Ok(());
            }
        }
        let dots = forerun_io::u64_from(DOTS.len());
        let cursor = DirCursor(from.saturating_sub(dots));
        let driver = self.contents.driver();
        driver.read_dir(dir, cursor, &mut |found: DirEntry<'_>| {
            let number = self.numbers.number(found.node);
            let kind = kind_bits(found.kind);
            let full = match self.plus {
                // On an error the entry goes without attributes; the kernel then looks them up and
                // gets the error.
                true => driver.metadata(found.node).ok(),
                false => None,
            };
            let full = full.map(|metadata| entry(&self.numbers, found.node, &metadata));
            let next = found.next.0 + dots;
            self.push(
                number,
                next,
                kind,
                found.name,
                &full.unwrap_or_default(),
                out,
            )
        })
    }

    fn push(
        &self,
        ino: u64,
        next: u64,
        kind: u32,
        name: &[u8],
        full: &EntryOut,
        out: &mut Vec<u8>,
    ) -> ControlFlow<()> {
        let head = if self.plus { size_of::<EntryOut>() } else { 0 };
        let len = (head + size_of::<Dirent>() + name.len()).next_multiple_of(8);
        let end = out.len() + len;
        let Ok(namelen) = u32::try_from(name.len()) else {
            return ControlFlow::Break(());
        };
        if end > usize_from(self.room.into()) {
            return ControlFlow::Break(());
        }
        if self.plus {
            out.extend_from_slice(full.as_bytes());
        }
        let dirent = Dirent {
            ino,
            off: next,
            namelen,
            kind,
        };
        out.extend_from_slice(dirent.as_bytes());
        out.extend_from_slice(name);
        out.resize(end, 0);
        ControlFlow::Continue(())
    }
}
