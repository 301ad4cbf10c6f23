//! An image as one side of a comparison.

use forerun_engine::Reader;
use forerun_vfs::{Error, FileType, Held, Metadata, NodeId, WalkEntry};

use super::DiffOptions;
use super::compare::Xattrs;
use super::entry::{Choice, Entry, Id, choose};
use crate::ExportError;
use crate::select::hold_failure;

/// Memory per entry in addition to its path: map entries, the pair, and file lists.
const ENTRY: usize = size_of::<Entry>() + 160;

/// Collects all entries to compare, unordered.
///
/// # Errors
/// The entries exceed [`Limits::walk_bytes`](forerun_vfs::Limits::walk_bytes).
pub fn entries(
    reader: &Reader,
    options: &DiffOptions,
    held: &mut Held,
    failures: &mut Vec<ExportError>,
) -> Result<Vec<Entry>, ExportError> {
    let mut entries = Vec::new();
    let mut walk = reader.walk(reader.fs().root());
    while let Some(entry) = walk.next() {
        let entry = match entry {
            Ok(entry) => entry,
            Err(failed) => {
                let failed = ExportError::image(&failed.path, failed.error);
                hold_failure(held, &failed)?;
                failures.push(failed);
                continue;
            }
        };
        let path = entry.path.clone();
        match choose(&path, options) {
            Choice::Take => match taken(reader, entry) {
                Ok(entry) => {
                    let counted = held.add(ENTRY + path.len() + entry.target.len());
                    counted.map_err(|error| ExportError::image(&path, error))?;
                    entries.push(entry);
                }
                Err(error) => {
                    let failed = ExportError::image(&path, error);
                    hold_failure(held, &failed)?;
                    failures.push(failed);
                }
            },
            Choice::Pass => {}
            Choice::Skip => walk.skip_children(),
        }
    }
    Ok(entries)
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

pub const fn node(entry: &Entry) -> NodeId {
    match entry.id {
        Id::Node(node) => node,
        // An invalid node, so that reading it is an error.
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
