//! The side that is an image.

use forerun_engine::Reader;
use forerun_vfs::{Error, FileType, Metadata, NodeId, WalkEntry};

use super::DiffOptions;
use super::compare::Xattrs;
use super::entry::{Choice, Entry, Id, choose};
use crate::ExportError;

/// Everything that is compared, in no order.
pub fn entries(
    reader: &Reader,
    options: &DiffOptions,
    failures: &mut Vec<ExportError>,
) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut walk = reader.walk(reader.fs().root());
    let mut at = Vec::new();
    while let Some(entry) = walk.next() {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                failures.push(ExportError::image(&at, error));
                continue;
            }
        };
        at.clone_from(&entry.path);
        match choose(&entry.path, options) {
            Choice::Take => match taken(reader, entry) {
                Ok(entry) => entries.push(entry),
                Err(error) => failures.push(ExportError::image(&at, error)),
            },
            Choice::Pass => {}
            Choice::Skip => walk.skip_children(),
        }
    }
    entries
}

fn taken(reader: &Reader, entry: WalkEntry) -> Result<Entry, Error> {
    let metadata: Metadata = entry.metadata?;
    let target = match metadata.kind {
        FileType::Symlink => reader.fs().read_link(entry.node)?,
        _ => Vec::new(),
    };
    Ok(Entry {
        path: entry.path,
        id: Id::Node(entry.node),
        metadata,
        target,
        first: None,
    })
}

/// The node of an entry of this side.
pub const fn node(entry: &Entry) -> NodeId {
    match entry.id {
        Id::Node(node) => node,
        // No node has this id; asking for it is an error and not another file.
        Id::Host(..) => NodeId(u64::MAX),
    }
}

pub fn xattrs(reader: &Reader, entry: &Entry) -> Result<Xattrs, ExportError> {
    let mut found = Xattrs::new();
    let add = &mut |name: &[u8], value: &[u8]| {
        found.insert(name.to_vec(), value.to_vec());
    };
    let read = reader.fs().xattrs(node(entry), add);
    read.map_err(|error| ExportError::image(&entry.path, error))?;
    Ok(found)
}
