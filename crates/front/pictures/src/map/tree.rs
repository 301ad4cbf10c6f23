//! The largest files and directories of a tree, in bounded memory. Small entries are added to their
//! directory's total.

use std::cmp::Reverse;

/// Maximum number of nodes in the result. During the walk there are up to twice as many, plus the
/// directories from the root to the current path.
const MOST: usize = 2000;
const NAME: usize = 255;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Number of regular files. A file with several names counts under the first.
    pub files: u64,
    /// Number of other nodes and of further names of files.
    pub others: u64,
    pub size: u64,
    /// Bytes that the files occupy in the image. Files that share a compressed block each count
    /// their share of it.
    pub stored: u64,
    pub holes: u64,
    /// Stored bytes that are at the same offset as an earlier file's.
    pub shared: u64,
    /// Bytes stored inline with metadata.
    pub inline: u64,
    /// Bytes outside the image: on other devices or in an object store.
    pub outside: u64,
    /// Number of contiguous runs in the image.
    pub runs: u64,
    pub fragmented: u64,
}

impl Sums {
    /// Returns the bytes that the files occupy in the image, counting shared bytes once.
    #[must_use]
    pub const fn in_image(&self) -> u64 {
        // The totals saturate if files claim absurd lengths.
        self.stored.saturating_sub(self.shared)
    }

    fn add(&mut self, other: &Self) {
        self.each(other, u64::saturating_add);
    }

    pub(super) fn subtract(&mut self, other: &Self) {
        self.each(other, u64::saturating_sub);
    }

    fn each(&mut self, other: &Self, of: fn(u64, u64) -> u64) {
        for (sum, n) in [
            (&mut self.files, other.files),
            (&mut self.others, other.others),
            (&mut self.size, other.size),
            (&mut self.stored, other.stored),
            (&mut self.holes, other.holes),
            (&mut self.shared, other.shared),
            (&mut self.inline, other.inline),
            (&mut self.outside, other.outside),
            (&mut self.runs, other.runs),
            (&mut self.fragmented, other.fragmented),
        ] {
            *sum = of(*sum, n);
        }
    }

    fn weight(&self) -> u64 {
        self.size.max(self.stored)
    }
}

#[derive(Clone, Debug)]
pub struct TreeNode {
    /// Index of the parent directory; the root is its own parent.
    pub parent: usize,
    /// The name, truncated to `NAME` bytes.
    pub name: Vec<u8>,
    pub is_dir: bool,
    /// Totals of the file, or of everything below the directory.
    pub sums: Sums,
    /// Totals of the directory's entries without a node.
    pub rest: Sums,
}

/// Nodes in an order in which parents precede their entries.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    pub nodes: Vec<TreeNode>,
    /// The directories from the root to the current path.
    open: Vec<usize>,
}

impl Tree {
    /// Returns to the directory at `depth`; the root is at depth 0.
    pub fn close(&mut self, depth: usize) {
        while self.open.len() > depth {
            let Some(done) = self.open.pop() else { return };
            let sums = self.nodes.get(done).map(|node| node.sums);
            if let (Some(sums), Some(parent)) = (sums, self.current()) {
                parent.sums.add(&sums);
            }
        }
    }

    fn current(&mut self) -> Option<&mut TreeNode> {
        self.nodes.get_mut(*self.open.last()?)
    }

    pub fn enter(&mut self, name: &[u8]) {
        let index = self.push(name, true, Sums::default());
        self.open.push(index);
        self.bound();
    }

    pub fn file(&mut self, name: &[u8], sums: Sums) {
        if let Some(dir) = self.current() {
            dir.sums.add(&sums);
        }
        self.push(name, false, sums);
        self.bound();
    }

    fn bound(&mut self) {
        if self.nodes.len() > 2 * MOST + self.open.len() {
            self.prune();
        }
    }

    /// Adds totals without a node to the current directory.
    pub fn rest(&mut self, sums: &Sums) {
        if let Some(dir) = self.current() {
            dir.sums.add(sums);
            dir.rest.add(sums);
        }
    }

    pub fn finish(&mut self) {
        self.close(1);
        while self.nodes.len() > MOST + 1 {
            self.prune();
        }
    }

    fn push(&mut self, name: &[u8], is_dir: bool, sums: Sums) -> usize {
        let index = self.nodes.len();
        self.nodes.push(TreeNode {
            parent: self.open.last().copied().unwrap_or(index),
            name: name.get(..NAME).unwrap_or(name).to_vec(),
            is_dir,
            sums,
            rest: Sums::default(),
        });
        index
    }

    /// Adds the smaller half of the nodes to their parents' `rest`. A node never ranks above its
    /// parent (by size, then index), so a parent is never removed before its entries.
    fn prune(&mut self) {
        let rank = |(index, node): (usize, &TreeNode)| (node.sums.weight(), Reverse(index));
        let is_open = |index: usize| self.open.contains(&index);
        let closed = self.nodes.iter().enumerate();
        let mut ranks: Vec<_> = closed
            .filter(|(index, _)| !is_open(*index))
            .map(rank)
            .collect();
        let half = ranks.len() / 2;
        let middle = match ranks.get(half) {
            Some(_) => *ranks.select_nth_unstable(half).1,
            None => return,
        };
        let mut kept: Vec<TreeNode> = Vec::new();
        // New index of each remaining node.
        let mut moved: Vec<Option<usize>> = Vec::new();
        let open = std::mem::take(&mut self.open);
        for (index, mut node) in std::mem::take(&mut self.nodes).into_iter().enumerate() {
            let parent = moved.get(node.parent).copied().flatten();
            let stays = open.contains(&index) || rank((index, &node)) > middle;
            if stays {
                node.parent = parent.unwrap_or(kept.len());
                moved.push(Some(kept.len()));
                kept.push(node);
                continue;
            }
            moved.push(None);
            if let Some(dir) = parent.and_then(|parent| kept.get_mut(parent)) {
                dir.rest.add(&node.sums);
            }
        }
        let moved = |index: &usize| moved.get(*index).copied().flatten();
        self.open = open.iter().filter_map(moved).collect();
        self.nodes = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(size: u64) -> Sums {
        Sums {
            files: 1,
            size,
            ..Sums::default()
        }
    }

    /// Asserts that each directory's totals are the sum of its entries.
    fn assert_sums(tree: &Tree) {
        let mut sums: Vec<_> = tree.nodes.iter().map(|node| node.rest).collect();
        for (index, node) in tree.nodes.iter().enumerate().rev() {
            assert!(node.parent <= index);
            if !node.is_dir {
                sums[index] = node.sums;
            }
            assert_eq!(sums[index], node.sums, "{index}");
            if node.parent != index {
                let sum = sums[index];
                sums[node.parent].add(&sum);
            }
        }
    }

    #[test]
    fn small_files_are_added_up() {
        let mut tree = Tree::default();
        tree.enter(b"");
        for dir in 0..100 {
            tree.close(1);
            tree.enter(b"dir");
            for sub in 0..10 {
                tree.close(2);
                tree.enter(b"sub");
                for n in 0..100 {
                    tree.file(b"file", file(dir * sub + n % 7));
                }
            }
        }
        tree.close(1);
        tree.rest(&file(5));
        tree.file(b"big", file(1 << 40));
        tree.finish();
        assert!(tree.nodes.len() <= MOST + 1);
        assert_eq!(tree.nodes[0].sums.files, 100 * 10 * 100 + 2);
        assert!(tree.nodes.iter().any(|node| node.name == b"big"));
        assert_sums(&tree);
    }

    #[test]
    fn many_files_of_one_size() {
        let mut tree = Tree::default();
        tree.enter(b"");
        for _ in 0..50_000 {
            tree.file(b"x", file(1));
        }
        tree.finish();
        assert!((MOST / 3..=MOST + 1).contains(&tree.nodes.len()));
        assert_sums(&tree);
    }

    #[test]
    fn a_deep_tree() {
        let mut tree = Tree::default();
        for depth in 0..3000 {
            tree.close(depth);
            tree.enter(b"d");
            tree.file(b"f", file(3));
        }
        tree.finish();
        assert_eq!(tree.nodes[0].sums.files, 3000);
        assert!(tree.nodes.len() <= MOST + 1);
        assert_sums(&tree);
    }
}
