//! The tree that a volume shows, with the contents of its files.

use std::ops::ControlFlow;

use forerun_io::{ReadAt, u64_from, usize_from};
use forerun_vfs::{Bound, DirCursor, Error, Extent, FileSystem, FileType, NodeId, Place, Result};

/// A walk gives up after this many entries, because no workload makes so many.
const MANY: usize = 10_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundNode {
    /// Index of the directory in [`Found::nodes`]; `None` for the root.
    pub parent: Option<usize>,
    pub name: Vec<u8>,
    /// Length of a file; `None` for a directory.
    pub len: Option<u64>,
    /// The first bytes of a file, at most [`Found::SHOWN`].
    pub content: Vec<u8>,
}

/// A found tree. Directories come before their entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    pub nodes: Vec<FoundNode>,
}

impl Found {
    /// How many bytes of each file are read.
    pub const SHOWN: u64 = 64 << 10;

    /// Walks a volume and reads its files through the driver's extents.
    pub fn read(fs: &dyn FileSystem, device: &dyn ReadAt) -> Result<Self> {
        let mut found = Self::default();
        let mut todo = vec![(None, fs.root())];
        while let Some((parent, dir)) = todo.pop() {
            let mut entries = Vec::new();
            fs.read_dir(dir, DirCursor::START, &mut |entry| {
                entries.push((entry.name.to_vec(), entry.node, entry.kind));
                if entries.len() > MANY {
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            })?;
            for (name, node, kind) in entries {
                if found.nodes.len() >= MANY {
                    return Err(Error::limit(
                        Bound::Other,
                        "names of a tree",
                        u64_from(MANY),
                    ));
                }
                let (len, content) = match kind {
                    FileType::Directory => {
                        todo.push((Some(found.nodes.len()), node));
                        (None, Vec::new())
                    }
                    _ => {
                        let len = fs.metadata(node)?.size;
                        (Some(len), content(fs, device, node, len.min(Self::SHOWN))?)
                    }
                };
                found.nodes.push(FoundNode {
                    parent,
                    name,
                    len,
                    content,
                });
            }
        }
        Ok(found)
    }

    pub fn path(&self, index: usize) -> String {
        let node = &self.nodes[index];
        let name = super::operation::shown(&node.name);
        match node.parent {
            Some(parent) => format!("{}/{name}", self.path(parent)),
            None => name,
        }
    }

    /// Sorts the nodes by path, so that trees in different order are equal.
    pub fn sorted(&self) -> Vec<(String, Option<u64>, &[u8])> {
        let nodes = self.nodes.iter().enumerate();
        let mut sorted: Vec<_> = nodes
            .map(|(index, node)| (self.path(index), node.len, &*node.content))
            .collect();
        sorted.sort();
        sorted
    }
}

fn content(fs: &dyn FileSystem, device: &dyn ReadAt, node: NodeId, len: u64) -> Result<Vec<u8>> {
    let mut extents = Vec::new();
    fs.map(node, 0..len, &mut |extent| {
        extents.push(extent);
        ControlFlow::Continue(())
    })?;
    let mut bytes = vec![0; usize_from(len)];
    let mut covered = 0;
    for Extent { logical, place } in extents {
        assert_eq!(logical.start.max(covered), covered, "extents have a gap");
        covered = logical.end.min(len);
        let part = &mut bytes[usize_from(logical.start)..usize_from(covered)];
        match place {
            Place::Zero => part.fill(0),
            Place::Stored { offset, .. } => device
                .read_exact_at(offset, part)
                .map_err(|error| Error::io(offset, part.len(), error))?,
            Place::Inline(from) => part.copy_from_slice(&from[..part.len()]),
            Place::Encoded { .. } => {
                return Err(Error::Unsupported("encoded data that changes".into()));
            }
        }
    }
    assert_eq!(covered, len, "extents end early");
    Ok(bytes)
}
