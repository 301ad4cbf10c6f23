//! The plan of an extraction, by directory: the entries of each, their order, and the names that are one file.

use std::collections::HashMap;

use forerun_vfs::{FileType, NodeId};

use crate::select::Selected;

/// A directory to be made.
pub struct Dir<'s> {
    /// Index of the directory it is in; the target, at 0, is in itself.
    pub parent: usize,
    pub name: &'s [u8],
    /// Nothing for one that the image does not tell of.
    pub entry: Option<&'s Selected>,
}

#[derive(Clone, Copy)]
pub struct Item<'s> {
    /// Index of the directory it is in.
    pub dir: usize,
    pub name: &'s [u8],
    pub entry: &'s Selected,
}

/// Bytes that the plan of an entry takes, with what is made of it while files are written: its item, its
/// place in the maps of nodes, its places in the lists of the bulk stream.
pub const ENTRY: usize = size_of::<Item<'static>>() + 48 + 40 + 48;

pub struct Plan<'s> {
    /// The target first; each after the one it is in.
    pub dirs: Vec<Dir<'s>>,
    /// Symbolic links, devices, fifos and sockets, in the order of the walk.
    pub others: Vec<Item<'s>>,
    /// Regular files, in the order of the walk.
    pub files: Vec<Item<'s>>,
    /// Further names: what was made first, and the name.
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
        // Which entry has the first name of a node, and the directory that it is in.
        let mut firsts: HashMap<NodeId, (usize, usize)> = HashMap::new();
        for (at, entry) in entries.iter().enumerate() {
            if entry.metadata.kind == FileType::Directory {
                let dir = plan.dir(&mut index, entry.name());
                if let Some(dir) = plan.dirs.get_mut(dir) {
                    // Of the roots of several choices none is that of the image.
                    dir.entry = dir.entry.or(Some(entry));
                }
                continue;
            }
            let (parent, name) = split(entry.name());
            // What is selected by itself, as the root of the choice, has no name left.
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

    /// Iterates over everything that has a name, as (directory, name, path in the output).
    pub fn names(&self) -> impl Iterator<Item = (usize, &'s [u8], Option<&'s Selected>)> + '_ {
        let dirs = self.dirs.iter().skip(1);
        let dirs = dirs.map(|dir| (dir.parent, dir.name, dir.entry));
        let items = self.others.iter().chain(&self.files);
        let items = items.chain(self.links.iter().map(|(_, item)| item));
        dirs.chain(items.map(|item| (item.dir, item.name, Some(item.entry))))
    }

    /// Returns the index of a directory. Adds it, with the directories above it, where it is not known
    /// yet.
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

/// Splits a path into its directory and the name in it.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}
