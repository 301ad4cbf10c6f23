//! The plan of an extraction: the entries of each directory, their order, and hard links.

use std::collections::HashMap;

use forerun_vfs::{FileType, NodeId};

use crate::select::Selected;

pub struct Dir<'s> {
    /// Index of the parent. The target is at index 0 and its own parent.
    pub parent: usize,
    pub name: &'s [u8],
    /// `None` if the image has no entry for the directory.
    pub entry: Option<&'s Selected>,
}

#[derive(Clone, Copy)]
pub struct Item<'s> {
    pub dir: usize,
    pub name: &'s [u8],
    pub entry: &'s Selected,
}

/// Memory per entry: its item, its place in maps of nodes, and its places in the lists of the bulk
/// stream.
pub const ENTRY: usize = size_of::<Item<'static>>() + 48 + 40 + 48;

pub struct Plan<'s> {
    /// The target first; parents before their subdirectories.
    pub dirs: Vec<Dir<'s>>,
    /// Symbolic links, devices, fifos and sockets, in walk order.
    pub others: Vec<Item<'s>>,
    /// Regular files, in walk order.
    pub files: Vec<Item<'s>>,
    /// Hard links: the first name, and the further name.
    pub links: Vec<(Item<'s>, Item<'s>)>,
}

impl<'s> Plan<'s> {
    pub fn new(entries: &'s [Selected]) -> Self {
        let target = Dir {
            parent: 0,
            name: b"",
            entry: None,
        };
        let mut plan = Self {
            dirs: vec![target],
            others: Vec::new(),
            files: Vec::new(),
            links: Vec::new(),
        };
        let mut index = HashMap::from([(&b""[..], 0)]);
        // Index of the entry with a node's first name, and of its parent directory.
        let mut firsts: HashMap<NodeId, (usize, usize)> = HashMap::new();
        for (at, entry) in entries.iter().enumerate() {
            if entry.metadata.kind == FileType::Directory {
                let dir = plan.dir(&mut index, entry.name());
                if let Some(dir) = plan.dirs.get_mut(dir) {
                    // Several selected roots map to the target; the first one's entry is used.
                    dir.entry = dir.entry.or(Some(entry));
                }
                continue;
            }
            let (parent, name) = split(entry.name());
            // An entry selected by itself as the root has no name.
            if name.is_empty() {
                continue;
            }
            let dir = plan.dir(&mut index, parent);
            let item = Item { dir, name, entry };
            let first = firsts.get(&entry.node);
            match first.and_then(|&(at, dir)| Some((entries.get(at)?, dir))) {
                Some((entry, dir)) => {
                    let name = split(entry.name()).1;
                    plan.links.push((Item { dir, name, entry }, item));
                }
                None => {
                    firsts.insert(entry.node, (at, dir));
                    match entry.metadata.kind {
                        FileType::Regular => plan.files.push(item),
                        _ => plan.others.push(item),
                    }
                }
            }
        }
        plan
    }

    /// Iterates over all names, as (directory, name, entry).
    pub fn names(&self) -> impl Iterator<Item = (usize, &'s [u8], Option<&'s Selected>)> + '_ {
        let dirs = self.dirs.iter().skip(1);
        let dirs = dirs.map(|dir| (dir.parent, dir.name, dir.entry));
        let items = self.others.iter().chain(&self.files);
        let items = items.chain(self.links.iter().map(|(_, item)| item));
        dirs.chain(items.map(|item| (item.dir, item.name, Some(item.entry))))
    }

    /// Returns the number of names below each directory, at any depth.
    pub fn sizes(&self) -> Vec<usize> {
        let mut sizes = vec![0; self.dirs.len()];
        for (dir, _, _) in self.names() {
            sizes[dir] += 1;
        }
        for (index, dir) in self.dirs.iter().enumerate().skip(1).rev() {
            sizes[dir.parent] += sizes[index];
        }
        sizes
    }

    /// Returns the indices of all directories but the target, grouped by their parents, which come
    /// first.
    pub fn by_parent(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (1..self.dirs.len()).collect();
        // A parent has a smaller index than its subdirectories, so its own group comes first.
        order.sort_by_key(|&index| self.dirs[index].parent);
        order
    }

    /// Returns the index of a directory; adds it and its parents if needed.
    fn dir(&mut self, index: &mut HashMap<&'s [u8], usize>, path: &'s [u8]) -> usize {
        if let Some(&at) = index.get(path) {
            return at;
        }
        let mut missing = vec![path];
        let mut above = split(path).0;
        let mut parent = loop {
            if let Some(&at) = index.get(above) {
                break at;
            }
            missing.push(above);
            above = split(above).0;
        };
        for path in missing.into_iter().rev() {
            self.dirs.push(Dir {
                parent,
                name: split(path).1,
                entry: None,
            });
            parent = self.dirs.len() - 1;
            index.insert(path, parent);
        }
        parent
    }
}

fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}
