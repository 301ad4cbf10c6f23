//! Link counts. A [`TreeModel`] implies them by the names of each node.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use forerun_vfs::FileType;

use super::TreeModel;

impl TreeModel {
    /// Fails the test unless `stat` returns for each node below `root` the link count that this
    /// tree implies: the number of its names, or for a directory 2 plus the number of its
    /// subdirectories.
    pub fn assert_link_counts(&self, root: &Path) {
        let mut names: BTreeMap<&[u8], u64> = BTreeMap::new();
        let mut below: BTreeMap<&[u8], u64> = BTreeMap::new();
        for (path, node) in &self.nodes {
            let first = node.linked_to.as_deref().unwrap_or(path);
            *names.entry(first).or_default() += 1;
            if node.kind == FileType::Directory && !path.is_empty() {
                let slash = path.iter().rposition(|&byte| byte == b'/');
                *below.entry(&path[..slash.unwrap_or(0)]).or_default() += 1;
            }
        }
        for (path, node) in &self.nodes {
            let expected = match node.kind {
                FileType::Directory => 2 + below.get(&path[..]).copied().unwrap_or(0),
                _ => names[node.linked_to.as_deref().unwrap_or(path)],
            };
            let host = root.join(OsStr::from_bytes(path));
            let found = fs::symlink_metadata(&host).unwrap().nlink();
            assert_eq!(found, expected, "links of {}", host.display());
        }
    }
}
