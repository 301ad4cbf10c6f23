//! Which part of an image is wanted, and under which names.

use forerun_engine::Reader;
use forerun_engine::build::Patterns;
use forerun_vfs::{Error, FileType, FollowLast, Metadata, NodeId, resolve};

use crate::ExportError;

/// A choice of entries. The default is all of them.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Paths in the image, each taken with everything below it; none means the root.
    pub paths: Vec<Vec<u8>>,
    /// Where there are any, only what one of these covers is taken.
    pub include: Patterns,
    /// What one of these covers is left out.
    pub exclude: Patterns,
    /// Leading components cut off the paths; entries with no more than these are left out.
    pub strip_components: usize,
}

/// An entry that was chosen.
#[derive(Debug)]
pub struct Selected {
    /// Path in the image, without a leading slash; empty for the root.
    pub path: Vec<u8>,
    /// Path in the output; empty for what becomes the target itself.
    pub name: Vec<u8>,
    pub node: NodeId,
    pub metadata: Metadata,
}

/// What [`select`] gives.
#[derive(Debug, Default)]
pub struct Chosen {
    /// In the order of the walk: directories before what is in them.
    pub entries: Vec<Selected>,
    /// What could not be looked at.
    pub failures: Vec<ExportError>,
}

/// Walks the image and chooses.
///
/// # Errors
/// A path of the selection that is not there. Damage further down is a failure in the result.
pub fn select(reader: &Reader, selection: &Selection) -> Result<Chosen, ExportError> {
    let mut chosen = Chosen::default();
    let root = vec![Vec::new()];
    let starts = if selection.paths.is_empty() {
        &root
    } else {
        &selection.paths
    };
    for start in starts {
        let node = resolve(reader.fs(), start, FollowLast::No, reader.limits());
        let node = node.map_err(|error| ExportError::image(trim(start), error))?;
        let prefix = normal(start);
        let mut walk = reader.walk(node);
        while let Some(entry) = walk.next() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(source) => {
                    chosen.failures.push(ExportError::image(&prefix, source));
                    continue;
                }
            };
            let path = join(&prefix, &entry.path);
            if selection.exclude.matches(&path) {
                walk.skip_children();
                continue;
            }
            let metadata = match entry.metadata {
                Ok(metadata) => metadata,
                Err(source) => {
                    chosen.failures.push(ExportError::image(&path, source));
                    continue;
                }
            };
            let wanted = selection.include.is_empty() || selection.include.covers(&path);
            let Some(name) = strip(&path, selection.strip_components) else {
                continue;
            };
            // Directories above what is wanted are made where it is.
            if wanted {
                chosen.entries.push(Selected {
                    path,
                    name,
                    node: entry.node,
                    metadata,
                });
            }
        }
    }
    Ok(chosen)
}

impl Chosen {
    /// Bytes of all regular files; a file with several names is counted once.
    pub fn content_bytes(&self) -> u64 {
        let mut seen = std::collections::HashSet::new();
        let files = self
            .entries
            .iter()
            .filter(|entry| entry.metadata.kind == FileType::Regular);
        let sizes = files
            .filter(|entry| seen.insert(entry.node))
            .map(|entry| entry.metadata.size);
        sizes.fold(0, u64::saturating_add)
    }

    /// Holds the bytes to be written against the limit.
    pub fn check_limit(&self, limit: u64) -> Result<u64, ExportError> {
        let count = self.content_bytes();
        if count > limit {
            Err(ExportError::Limit {
                what: "the size of",
                count,
                limit,
            })
        } else {
            Ok(count)
        }
    }
}

/// The path with its `.` and `..` resolved by name, as the output will show it.
fn normal(path: &[u8]) -> Vec<u8> {
    let mut names: Vec<&[u8]> = Vec::new();
    for name in path.split(|&byte| byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => drop(names.pop()),
            _ => names.push(name),
        }
    }
    names.join(&b'/')
}

fn trim(path: &[u8]) -> &[u8] {
    path.strip_prefix(b"/").unwrap_or(path)
}

pub fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    match (dir, name) {
        (b"", name) => name.to_vec(),
        (dir, b"") => dir.to_vec(),
        (dir, name) => [dir, name].join(&b'/'),
    }
}

fn strip(path: &[u8], components: usize) -> Option<Vec<u8>> {
    if components == 0 {
        return Some(path.to_vec());
    }
    let rest: Vec<_> = path.split(|&byte| byte == b'/').skip(components).collect();
    if rest.is_empty() {
        None
    } else {
        Some(rest.join(&b'/'))
    }
}

/// An image's error as a failure of the entry.
pub fn failure(entry: &Selected, source: Error) -> ExportError {
    ExportError::image(&entry.path, source)
}
