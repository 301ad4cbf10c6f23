//! The chain of headers that forms a directory.
//!
//! The format lets `next` point anywhere, even backwards, so a chain can be a loop. A single walk
//! detects that (Brent's algorithm: it remembers the offset at each power of two, to which a loop
//! returns). A walk that resumes at a cursor remembers nothing. It is therefore given the number of
//! headers before it, which the length of the image bounds.

use forerun_vfs::{Bound, Error, NodeId, Result};

use crate::error::Check;
use crate::header::{self, Header};
use crate::image::Image;

/// The headers of a directory, in the image's order, including `.` and `..`. Ends after an error.
pub struct Chain<'a> {
    image: &'a Image,
    dir: NodeId,
    next: Option<u64>,
    done: u64,
    /// The header to which a loop would return, and the number of steps until the next header is
    /// marked.
    mark: Option<u64>,
    patience: u64,
    power: u64,
}

impl<'a> Chain<'a> {
    /// Starts at the first header; 0 for none.
    pub fn new(image: &'a Image, dir: NodeId, first: u64) -> Self {
        Self::resume(image, dir, first, 0)
    }

    /// Resumes at the header at `next`, after `done` others.
    pub fn resume(image: &'a Image, dir: NodeId, next: u64, done: u64) -> Self {
        Self {
            image,
            dir,
            next: Some(next).filter(|&next| next != 0),
            done,
            mark: None,
            patience: 0,
            power: 1,
        }
    }

    pub const fn position(&self) -> Option<u64> {
        self.next
    }

    /// Returns the number of headers so far, including those before a resumed walk.
    pub const fn done(&self) -> u64 {
        self.done
    }

    fn check_bounds(&mut self, offset: u64) -> Result<()> {
        let fail = |check: Check| Err(check.at(Some(self.dir), offset));
        if self.mark == Some(offset) {
            return fail(Check::ChainLoop);
        }
        let room = self.image.superblock.full_size / header::max_len(0);
        if self.done >= room {
            return fail(Check::TooManyEntries { limit: room });
        }
        let limit = self.image.limits.dir_entries;
        // `.` and `..` do not count as entries.
        if self.done >= limit.saturating_add(2) {
            let what = format!("number of entries of directory {}", self.dir);
            return Err(Error::limit(Bound::Other, what, limit));
        }
        if self.patience == 0 {
            self.mark = Some(offset);
            self.patience = self.power;
            self.power *= 2;
        }
        self.patience -= 1;
        self.done += 1;
        Ok(())
    }
}

impl Iterator for Chain<'_> {
    type Item = Result<Header>;

    fn next(&mut self) -> Option<Result<Header>> {
        let offset = self.next.take()?;
        let header = self
            .check_bounds(offset)
            .and_then(|()| self.image.header(self.dir, offset));
        if let Ok(header) = &header {
            self.next = header.next;
        }
        Some(header)
    }
}
