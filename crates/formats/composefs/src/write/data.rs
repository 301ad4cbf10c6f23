//! Records where each file's contents are stored: in the image or in the object store.

use std::collections::HashMap;

use forerun_build::NodeIndex;

use crate::digest::Digest;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileData {
    Inline(Vec<u8>),
    Object {
        /// Path in the store. A file without one cannot be read.
        path: Option<Vec<u8>>,
        /// The required digest of the object.
        digest: Option<Digest>,
    },
}

impl FileData {
    #[must_use]
    pub fn object(digest: Digest) -> Self {
        Self::Object {
            path: Some(digest.object_path().into_bytes()),
            digest: Some(digest),
        }
    }
}

/// The data of all non-empty files.
#[derive(Clone, Debug, Default)]
pub struct Files {
    data: HashMap<NodeIndex, FileData>,
    nlinks: HashMap<NodeIndex, u32>,
    homes: HashMap<NodeIndex, (NodeIndex, Vec<u8>)>,
}

impl Files {
    pub fn insert(&mut self, node: NodeIndex, data: FileData) {
        self.data.insert(node, data);
    }

    /// Sets the number of names of a node, if some are outside the tree.
    pub fn set_nlink(&mut self, node: NodeIndex, nlink: u32) {
        self.nlinks.insert(node, nlink);
    }

    /// Sets the name that determines a node's location, unless it is set already.
    pub(super) fn set_home(&mut self, node: NodeIndex, dir: NodeIndex, name: &[u8]) {
        self.homes
            .entry(node)
            .or_insert_with(|| (dir, name.to_vec()));
    }

    pub(super) fn is_home(&self, dir: NodeIndex, name: &[u8], node: NodeIndex) -> bool {
        let home = self.homes.get(&node);
        home.is_some_and(|home| home.0 == dir && home.1 == name)
    }

    pub(super) fn get(&self, node: NodeIndex) -> Option<&FileData> {
        self.data.get(&node)
    }

    pub(super) fn nlink(&self, node: NodeIndex) -> Option<u32> {
        self.nlinks.get(&node).copied()
    }
}
