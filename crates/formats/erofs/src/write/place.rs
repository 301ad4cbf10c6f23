//! Chooses the positions of inodes and directories, in ascending order.
//!
//! Inline data must not cross the end of a block, so some blocks keep free space when the next
//! block is begun. Later inodes may fill free space up to 128 KiB back: readers read that much
//! ahead, so this costs no request, and it wastes little space.

use std::collections::VecDeque;

/// Inodes start at multiples of this; nids count it.
pub const SLOT: u64 = 32;
/// How far back free space is reused, in bytes.
const BACK: u64 = 128 << 10;

/// The lengths of an inode and the data that follows it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Item {
    /// Length of the inode itself, which must not cross the end of a block.
    pub core: u64,
    /// Length with xattrs and index.
    pub head: u64,
    /// Length of the inline data after them, which must not cross the end of a block.
    pub inline: u64,
}

pub struct Placer {
    block: u64,
    /// End of the blocks in use.
    end: u64,
    /// Where free space starts in blocks that are not full, in order.
    open: VecDeque<u64>,
}

impl Placer {
    /// `start` must be a multiple of [`SLOT`].
    pub fn new(start: u64, block: u64) -> Self {
        let mut placer = Self {
            block,
            end: start.next_multiple_of(block),
            open: VecDeque::new(),
        };
        placer.leave(start);
        placer
    }

    pub const fn end(&self) -> u64 {
        self.end
    }

    pub fn blocks(&mut self, len: u64) -> u64 {
        let start = self.end;
        self.end = start + len.next_multiple_of(self.block);
        start
    }

    pub fn item(&mut self, item: Item) -> u64 {
        let len = item.head + item.inline;
        if len > self.block {
            return self.long_item(item);
        }
        let room = |start: &u64| start.next_multiple_of(self.block) - start;
        let fitting = self.open.iter().enumerate();
        let fitting = fitting.filter(|(_, start)| room(start) >= len);
        // Best fit; the first of equally good ones.
        let best = fitting.min_by_key(|(_, start)| room(start));
        let start = match best.map(|(at, _)| at).and_then(|at| self.open.remove(at)) {
            Some(start) => start,
            None => self.blocks(self.block),
        };
        self.leave((start + len).next_multiple_of(SLOT));
        start
    }

    /// Places an inode longer than a block at the end, as early as it fits.
    fn long_item(&mut self, item: Item) -> u64 {
        let last = self.open.back().copied();
        let last = last.filter(|start| start.next_multiple_of(self.block) == self.end);
        let mut start = match last {
            Some(start) => {
                self.open.pop_back();
                start
            }
            None => self.end,
        };
        while !self.fits(start, item) {
            start += SLOT;
        }
        let end = start + item.head + item.inline;
        self.end = self.end.max(end.next_multiple_of(self.block));
        self.leave(end.next_multiple_of(SLOT));
        start
    }

    fn fits(&self, start: u64, item: Item) -> bool {
        let within = |at: u64, len| at % self.block + len <= self.block;
        within(start, item.core) && within(start + item.head, item.inline)
    }

    /// Records that a block is free from `start` to its end.
    fn leave(&mut self, start: u64) {
        let far = self.end.saturating_sub(BACK);
        while self.open.front().is_some_and(|&front| front < far) {
            self.open.pop_front();
        }
        if !start.is_multiple_of(self.block) {
            let at = self.open.partition_point(|&other| other < start);
            self.open.insert(at, start);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn item(core: u64, head: u64, inline: u64) -> Item {
        Item { core, head, inline }
    }

    #[test]
    fn room_is_used_and_borders_are_kept() {
        let mut placer = Placer::new(1152, 4096);
        assert_eq!(placer.item(item(64, 64, 0)), 1152);
        assert_eq!(placer.item(item(32, 32, 3000)), 4096);
        assert_eq!(placer.item(item(32, 32, 100)), 4096 + 3040);
        assert_eq!(placer.item(item(32, 32, 2800)), 1216);
        assert_eq!(placer.blocks(5000), 8192);
        assert_eq!(placer.end(), 16384);
        // An inode longer than a block goes to the end, with its inline data within one block.
        let long = item(64, 5000, 3000);
        let start = placer.item(long);
        assert!(
            start >= 16384 && (start + 5000) % 4096 + 3000 <= 4096,
            "{start}"
        );
        let long = item(64, 5000, 0);
        let second = placer.item(long);
        assert_eq!(second, (start + 8000).next_multiple_of(32));
    }

    #[test]
    fn room_far_behind_is_left() {
        let mut placer = Placer::new(0, 4096);
        for _ in 0..100 {
            placer.item(item(64, 64, 4000));
        }
        assert_eq!(placer.item(item(32, 32, 0)), (100 - 32) * 4096 + 4064);
    }
}
