//! What `ls` shows.

use std::ops::ControlFlow;

use forerun_engine::Reader;
use forerun_vfs::{DirCursor, Error, FileType, Metadata, NodeId};

/// An entry of a listing.
#[derive(Clone, Debug)]
pub struct ListEntry {
    /// Name in its directory.
    pub name: Vec<u8>,
    /// The node it names; equal for hard links.
    pub node: NodeId,
    /// Its metadata, or what is wrong with it.
    pub metadata: Result<Metadata, Error>,
    /// Target of a symbolic link.
    pub target: Option<Result<Vec<u8>, Error>>,
}

impl ListEntry {
    /// What is known of a node under a name.
    #[must_use]
    pub fn of(reader: &Reader, name: &[u8], node: NodeId) -> Self {
        let metadata = reader.fs().metadata(node);
        let is_link = metadata
            .as_ref()
            .is_ok_and(|metadata| metadata.kind == FileType::Symlink);
        let target = is_link.then(|| reader.fs().read_link(node));
        Self {
            name: name.to_vec(),
            node,
            metadata,
            target,
        }
    }
}

/// The entries of a directory by name, and what kept the rest of them from being read.
#[must_use]
pub fn list(reader: &Reader, dir: NodeId) -> (Vec<ListEntry>, Option<Error>) {
    let (mut names, limit) = (Vec::new(), reader.limits().dir_entries);
    let result = reader.fs().read_dir(dir, DirCursor::START, &mut |entry| {
        names.push((entry.name.to_vec(), entry.node));
        if forerun_io::u64_from(names.len()) > limit {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    let over = forerun_io::u64_from(names.len()) > limit;
    let error = result
        .err()
        .or_else(|| over.then(|| Error::limit(format!("entries of directory {dir}"), limit)));
    names.sort();
    (
        names
            .iter()
            .map(|(name, node)| ListEntry::of(reader, name, *node))
            .collect(),
        error,
    )
}
