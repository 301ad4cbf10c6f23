//! Priority lists: files with higher priorities come earlier in the image.

use std::path::{Path, PathBuf};

use forerun::build::Priorities;

use super::call::MakeCall;
use super::exclude::places;
use super::sources::MakeSources;
use super::{MakeEnded, stop};
use crate::complain;
use crate::error::reason;

/// Reads the lists. Paths in them are relative to the sources, or start at the root or the working
/// directory.
pub fn priorities(call: &MakeCall, sources: &MakeSources) -> MakeEnded<Priorities> {
    const FAILED: &str = "FATAL ERROR: Failed to read sort file";
    let mut found = Priorities::default();
    for list in &call.sort {
        let mut named = Priorities::default();
        let name = list.to_string_lossy();
        if let Err(error) = std::fs::metadata(list) {
            let why = reason(&error);
            return stop(format!(
                "Failed to open sort file \"{name}\" because {why}\n{FAILED}"
            ));
        }
        if let Err(error) = named.add_file(Path::new(list)) {
            return stop(format!("Sort file {error}\n{FAILED}"));
        }
        for path in named.paths() {
            let priority = named.of(path);
            let in_tree = in_tree(call, sources, path);
            if in_tree.is_empty() {
                let path = String::from_utf8_lossy(path);
                complain(&format!(
                    "Cannot stat sortlist entry \"{path}\"\nThis is probably because you're using the wrong file\npath relative to the source directories.  Ignoring"
                ));
            }
            for path in in_tree {
                found.insert(path, priority);
            }
        }
    }
    Ok(found)
}

/// Returns the paths in the tree of the files that a path names.
fn in_tree(call: &MakeCall, sources: &MakeSources, path: &[u8]) -> Vec<Vec<u8>> {
    if call.tar {
        return vec![path.to_vec()];
    }
    let there = places(call, path).into_iter();
    // Paths of a list lack the leading slash, so a full path is tried too.
    let there = there
        .chain(full(path))
        .filter(|place| place.symlink_metadata().is_ok());
    there.filter_map(|place| sources.in_tree(&place)).collect()
}

fn full(path: &[u8]) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    Some(Path::new("/").join(std::ffi::OsStr::from_bytes(path)))
}
