//! The largest files and directories of a tree, in bounded memory: small ones are added up in the directory
//! they are in.

use std::cmp::Reverse;

/// Nodes that are left at the end. While the tree is walked there are up to twice as many, and the
/// directories on the way to the current place.
const MOST: usize = 2000;
/// Bytes of a name that are kept.
const NAME: usize = 255;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Regular files. One with several names is counted where it was met first.
    pub files: u64,
    /// Other nodes, and further names of files.
    pub others: u64,
    /// Bytes of the files.
    pub size: u64,
    /// Bytes of the image that they take. Of a block with pieces of several files each has its share.
    pub stored: u64,
    pub holes: u64,
    /// Stored bytes that an earlier file has in the same place.
    pub shared: u64,
    /// Bytes that are stored along with metadata.
    pub inline: u64,
    /// Bytes that lie outside the image: in other devices, or in objects of a store.
    pub outside: u64,
    /// Pieces that do not follow each other in the image.
    pub runs: u64,
    /// Files of more than one piece.
    pub fragmented: u64,
}

impl Sums {
    /// Returns the bytes of the image that the files take. Those that several files have in common count once.
    #[must_use]
    pub const fn in_image(&self) -> u64 {
        // The sums of files that lie about their length end at the maximum.
        self.stored.saturating_sub(self.shared)
    }

    fn add(&mut self, other: &Self) {
        self.each(other, u64::saturating_add);
    }

    /// Takes away what was added.
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

/// A file or directory.
#[derive(Clone, Debug)]
pub struct TreeNode {
    /// Index of the directory that it is in. That of the root is its own.
    pub parent: usize,
    /// Its name, or the start of a long one.
    pub name: Vec<u8>,
    /// Whether it is a directory.
    pub is_dir: bool,
    /// Of the file, or of all that is in the directory.
    pub sums: Sums,
    /// Of what is in the directory and has no node.
    pub rest: Sums,
}

/// The tree. A directory comes before what is in it.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    pub nodes: Vec<TreeNode>,
    /// The directories on the way to the current place, the root first.
    open: Vec<usize>,
}

impl Tree {
    /// Goes up to the directory at `depth`; that of the root is 0.
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

    /// Enters a directory in the current one.
    pub fn enter(&mut self, name: &[u8]) {
        let index = self.push(name, true, Sums::default());
        self.open.push(index);
        self.bound();
    }

    /// Adds a file to the current directory.
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

    /// Adds what gets no node to the current directory.
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

    /// Adds the smaller half of the nodes to the directories that they are in. A node has no more weight than
    /// its directory, and a higher index, so a directory never goes before what is in it.
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
        // The new index of each node that stays.
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

    /// Asserts that a directory is the sum of what is in it.
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
