//! The extended attributes of a node.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use forerun_vfs::NodeId;

use crate::image::Image;

/// The extended attributes of a node: full names and values.
pub type Xattrs = Vec<(OsString, Vec<u8>)>;

impl Image {
    pub(crate) fn xattrs_of(&self, node: NodeId) -> forerun_vfs::Result<Xattrs> {
        let mut xattrs = Vec::new();
        self.reader().fs().xattrs(node, &mut |name, value| {
            xattrs.push((OsStr::from_bytes(name).to_owned(), value.to_vec()));
        })?;
        Ok(xattrs)
    }
}
