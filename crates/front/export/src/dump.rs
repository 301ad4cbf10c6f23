//! Dumps every structure of an image.

use forerun_engine::Reader;
use forerun_vfs::{Error, NodeId};

use crate::select::join;

#[derive(Clone, Debug)]
pub struct DumpRecord {
    /// Path of the node; `None` for the image as a whole.
    pub path: Option<Vec<u8>>,
    /// The node that the structure belongs to, if any.
    pub node: Option<NodeId>,
    /// Names and values in the format's order, or the read error.
    pub fields: Result<Vec<(&'static str, String)>, Error>,
}

/// Visits the records of the image and of every node below `start`, whose path is `path`. Nodes
/// with several names are visited once per name.
pub fn dump(reader: &Reader, start: NodeId, path: &[u8], visit: &mut dyn FnMut(DumpRecord)) {
    let fs = reader.fs();
    visit(DumpRecord {
        path: None,
        node: None,
        fields: fs.describe(None),
    });
    for entry in reader.walk(start) {
        visit(match entry {
            Ok(entry) => DumpRecord {
                path: Some(join(path, &entry.path)),
                node: Some(entry.node),
                fields: fs.describe(Some(entry.node)),
            },
            Err(failed) => DumpRecord {
                path: Some(join(path, &failed.path)),
                node: None,
                fields: Err(failed.error),
            },
        });
    }
}
