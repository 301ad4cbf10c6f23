//! Hard links to files of lower layers. An archive names such a file only by its path.
//!
//! A tool that unpacks layers in turn links to the file that earlier layers have at that path. So
//! the link is shown as that file, whatever upper layers do to the path.

use std::collections::HashMap;

use forerun_vfs::FileType;

use crate::ids::LayerNode;

/// The file that a link stands for; `None` if lower layers have none at its path.
pub type Link = Option<(LayerNode, FileType)>;

#[derive(Debug, Default)]
pub struct Links {
    files: HashMap<LayerNode, Link>,
    /// The links to missing files, with the paths.
    lost: Vec<(LayerNode, Vec<u8>)>,
}

impl Links {
    /// Returns the file that a node stands for; `None` if the node is not a link.
    pub fn get(&self, at: LayerNode) -> Option<Link> {
        if self.files.is_empty() {
            None
        } else {
            self.files.get(&at).copied()
        }
    }

    /// Returns whether a link stands for this file.
    pub fn leads_to(&self, at: LayerNode) -> bool {
        let mut files = self.files.values().flatten();
        files.any(|&(file, _)| file == at)
    }

    pub fn lost(&self) -> &[(LayerNode, Vec<u8>)] {
        &self.lost
    }

    pub fn add(&mut self, at: LayerNode, path: Vec<u8>, file: Link) {
        self.files.insert(at, file);
        if file.is_none() {
            self.lost.push((at, path));
        }
    }
}
