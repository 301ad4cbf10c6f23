//! The chain of headers that a directory is.
//!
//! The format lets `next` point anywhere, backwards too, so a chain can be tied into a loop. One walk
//! notices that (Brent's algorithm: the offset met at each power of two is kept, and a loop comes
//! back to it). A walk that is taken up again at a cursor has forgotten; that is why it is told how
//! many headers came before: there is an end to what an image has room for.

use forerun_vfs::{Bound, Error, NodeId, Result};

use crate::error::Check;
use crate::header::{self, Header};
use crate::image::Image;

/// The headers of a directory, in the image's order, `.` and `..` among them. Ends after an error.
pub struct Chain<'a> {
    image: &'a Image,
    dir: NodeId,
    next: Option<u64>,
    done: u64,
    /// The header that a loop will come back to, and how many more steps to wait for that.
    mark: Option<u64>,
    patience: u64,
    power: u64,
}

impl<'a> Chain<'a> {
    /// From the first header on, 0 where there is none.
    pub fn new(image: &'a Image, dir: NodeId, first: u64) -> Self {
        Self::resume(image, dir, first, 0)
    }

    /// Goes on at the header at `next` after `done` others.
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

    /// Offset of the header that comes next.
    pub const fn position(&self) -> Option<u64> {
        self.next
    }

    /// Headers so far, those before a resumed walk included.
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
            self.power = self.power.saturating_mul(2);
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
