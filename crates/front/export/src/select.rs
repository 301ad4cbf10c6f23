//! Selects entries of the image and determines their names in the output.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use forerun_build::Patterns;
use forerun_engine::Reader;
use forerun_vfs::{Error, FileType, FollowLast, Held, Metadata, NodeId, resolve};

use crate::{ExportError, expand};

/// A selection of entries. The default selects all.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Paths in the image, each selected with everything below it; empty means the root.
    pub paths: Vec<Vec<u8>>,
    /// Select only matching paths; empty means all.
    pub include: Patterns,
    pub exclude: Patterns,
    pub filter: Filter,
    /// Number of leading components to strip from paths. Entries without further components are
    /// omitted.
    pub strip_components: usize,
}

/// A predicate for entries. The default accepts all.
#[derive(Clone, Default)]
pub struct Filter(Option<Arc<Takes>>);

/// Returns whether to select an entry, given its path and whether it is a directory.
type Takes = dyn Fn(&[u8], bool) -> bool + Send + Sync;

impl Filter {
    /// Creates a filter. `takes` gets the path in the image, without a leading slash, and whether
    /// it is a directory. If it rejects a directory, it is not called for the entries below.
    pub fn new(takes: impl Fn(&[u8], bool) -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(takes)))
    }

    fn takes(&self, path: &[u8], kind: Option<FileType>) -> bool {
        let is_dir = kind == Some(FileType::Directory);
        self.0.as_ref().is_none_or(|takes| takes(path, is_dir))
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Filter").field(&self.0.is_some()).finish()
    }
}

impl Selection {
    /// Returns the number of members outside the image's tree, if the selection includes the whole
    /// tree; otherwise 0.
    pub fn left_out(&self, reader: &Reader) -> u64 {
        if self.paths.iter().all(|path| trim(path).is_empty()) {
            reader.fs().volume().left_out
        } else {
            0
        }
    }

    /// Replaces paths with wildcards by the matching paths.
    pub fn expand(&mut self, reader: &Reader) -> Result<(), ExportError> {
        let mut paths = Vec::with_capacity(self.paths.len());
        for path in &self.paths {
            paths.extend(expand(reader, path)?);
        }
        self.paths = paths;
        Ok(())
    }
}

#[derive(Debug)]
pub struct Selected {
    /// Path in the image, without a leading slash; empty for the root.
    pub path: Vec<u8>,
    pub node: NodeId,
    pub metadata: Metadata,
    /// The directory was not selected itself, but is the parent of a selected entry.
    pub implied: bool,
    /// Length of the path prefix that is stripped in the output.
    cut: usize,
}

impl Selected {
    #[must_use]
    pub const fn new(path: Vec<u8>, node: NodeId, metadata: Metadata) -> Self {
        Self {
            path,
            node,
            metadata,
            implied: false,
            cut: 0,
        }
    }

    /// Returns the path in the output; empty for the target itself.
    pub fn name(&self) -> &[u8] {
        &self.path[self.cut..]
    }
}

pub enum Found {
    /// Directories come before their entries.
    Entry(Selected),
    Failure(ExportError),
}

#[derive(Debug, Default)]
pub struct Chosen {
    /// In walk order: directories before their entries.
    pub entries: Vec<Selected>,
    pub failures: Vec<ExportError>,
}

/// Overhead of an allocation in bytes.
const ALLOCATION: usize = 16;

/// Walks the image and collects the selected entries. `more` is the memory that the caller needs
/// per entry in addition.
///
/// # Errors
/// The errors of [`visit`], and more entries than
/// [`Limits::walk_bytes`](forerun_vfs::Limits::walk_bytes) allows.
pub fn select(reader: &Reader, selection: &Selection, more: usize) -> Result<Chosen, ExportError> {
    let mut chosen = Chosen::default();
    let mut held = Held::new(reader.limits());
    visit(reader, selection, &mut |found| {
        match found {
            Found::Entry(entry) => {
                let bytes = size_of::<Selected>() + entry.path.len() + ALLOCATION + more;
                held.add(bytes).map_err(|error| failure(&entry, error))?;
                chosen.entries.push(entry);
            }
            Found::Failure(failed) => {
                hold_failure(&mut held, &failed)?;
                chosen.failures.push(failed);
            }
        }
        Ok(())
    })?;
    Ok(chosen)
}

/// Counts the memory of a failure kept for the report.
///
/// # Errors
/// The memory limit, at the failure's path.
pub fn hold_failure(held: &mut Held, failed: &ExportError) -> Result<(), ExportError> {
    let path = match failed {
        ExportError::Image { path, .. } | ExportError::LeftOut { path, .. } => path.as_slice(),
        _ => b"",
    };
    let counted = held.add(size_of::<ExportError>() + path.len() + ALLOCATION);
    counted.map_err(|error| ExportError::image(path, error))
}

/// Walks the image and visits the selected entries. Damage below the selected paths is passed as a
/// failure.
///
/// # Errors
/// A selected path does not exist, or the visitor fails.
pub fn visit(
    reader: &Reader,
    selection: &Selection,
    visit: &mut dyn FnMut(Found) -> Result<(), ExportError>,
) -> Result<(), ExportError> {
    for start in starts(selection) {
        let node = resolve(reader.fs(), start, FollowLast::No, reader.limits());
        let node = node.map_err(|error| ExportError::image(trim(start), error))?;
        let prefix = normal(start);
        let mut scan = Scan {
            reader,
            selection,
            visit: &mut *visit,
            pending: Vec::new(),
        };
        scan.above(&prefix);
        scan.walk(node, &prefix)?;
    }
    Ok(())
}

struct Scan<'s> {
    reader: &'s Reader,
    selection: &'s Selection,
    visit: &'s mut dyn FnMut(Found) -> Result<(), ExportError>,
    /// Unselected parents of the current path, outermost first.
    pending: Vec<Selected>,
}

impl Scan<'_> {
    /// Adds the parents of a selected path to `pending`.
    fn above(&mut self, start: &[u8]) {
        let slashes = start.iter().enumerate().filter(|&(_, &byte)| byte == b'/');
        let ends: Vec<_> = slashes.map(|(at, _)| at).collect();
        for path in ends.into_iter().filter_map(|end| start.get(..end)) {
            let fs = self.reader.fs();
            let node = resolve(fs, path, FollowLast::Yes, self.reader.limits());
            // An unreadable parent is created with the system's default attributes.
            if let Ok((node, metadata)) = node.and_then(|node| Ok((node, fs.metadata(node)?))) {
                self.imply(path, node, metadata);
            }
        }
    }

    fn walk(&mut self, start: NodeId, prefix: &[u8]) -> Result<(), ExportError> {
        let mut walk = self.reader.walk(start);
        let mut is_start = true;
        while let Some(entry) = walk.next() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(failed) => {
                    let path = join(prefix, &failed.path);
                    self.failed(ExportError::image(&path, failed.error))?;
                    continue;
                }
            };
            let path = join(prefix, &entry.path);
            let has_name = std::mem::take(&mut is_start) || !entry.path.is_empty();
            let kind = entry.metadata.as_ref().ok().map(|metadata| metadata.kind);
            let is_out = self.selection.exclude.matches(&path);
            if is_out || !self.selection.filter.takes(&path, kind) {
                walk.skip_children();
                continue;
            }
            if !has_name || !is_plain(&path) {
                let reason = "its name is not safe";
                self.failed(ExportError::LeftOut { path, reason })?;
                walk.skip_children();
                continue;
            }
            let include = &self.selection.include;
            let wanted = include.is_empty() || include.covers(&path);
            match entry.metadata {
                Ok(metadata) if wanted => self.take(path, entry.node, metadata)?,
                Ok(metadata) => self.imply(&path, entry.node, metadata),
                Err(source) => self.failed(ExportError::image(&path, source))?,
            }
        }
        Ok(())
    }

    fn take(&mut self, path: Vec<u8>, node: NodeId, metadata: Metadata) -> Result<(), ExportError> {
        self.leave(&path);
        for dir in self.pending.drain(..) {
            (self.visit)(Found::Entry(dir))?;
        }
        match self.selected(path, node, metadata, false) {
            Some(selected) => (self.visit)(Found::Entry(selected)),
            None => Ok(()),
        }
    }

    /// Adds an unselected directory to `pending`, in case something below it is selected.
    fn imply(&mut self, path: &[u8], node: NodeId, metadata: Metadata) {
        self.leave(path);
        if metadata.kind == FileType::Directory {
            let selected = self.selected(path.to_vec(), node, metadata, true);
            self.pending.extend(selected);
        }
    }

    /// Removes pending directories that are not parents of `path`.
    fn leave(&mut self, path: &[u8]) {
        while self
            .pending
            .last()
            .is_some_and(|dir| !is_below(path, &dir.path))
        {
            self.pending.pop();
        }
    }

    fn selected(
        &self,
        path: Vec<u8>,
        node: NodeId,
        metadata: Metadata,
        implied: bool,
    ) -> Option<Selected> {
        let cut = cut(&path, self.selection.strip_components)?;
        Some(Selected {
            path,
            node,
            metadata,
            implied,
            cut,
        })
    }

    fn failed(&mut self, failure: ExportError) -> Result<(), ExportError> {
        (self.visit)(Found::Failure(failure))
    }
}

impl Chosen {
    /// Returns the bytes of all regular files, counting a file with several names once.
    pub fn content_bytes(&self) -> u64 {
        let mut seen = HashSet::new();
        let files = self
            .entries
            .iter()
            .filter(|entry| entry.metadata.kind == FileType::Regular);
        let sizes = files
            .filter(|entry| seen.insert(entry.node))
            .map(|entry| entry.metadata.size);
        sizes.fold(0, u64::saturating_add)
    }

    /// Returns the bytes to write, or an error if they exceed the limit.
    pub fn check_limit(&self, limit: u64) -> Result<u64, ExportError> {
        within(self.content_bytes(), limit)
    }
}

/// Returns `count`, or an error if it exceeds the limit.
pub const fn within(count: u64, limit: u64) -> Result<u64, ExportError> {
    if count > limit {
        return Err(ExportError::Limit {
            what: "the size of",
            count,
            limit,
        });
    }
    Ok(count)
}

/// Returns the paths to start from, without those below another one.
fn starts(selection: &Selection) -> Vec<&[u8]> {
    if selection.paths.is_empty() {
        return vec![b""];
    }
    let mut kept: Vec<(Vec<u8>, &[u8])> = Vec::new();
    for path in &selection.paths {
        let name = normal(path);
        let within = |outer: &[u8], inner: &[u8]| inner == outer || is_below(inner, outer);
        if kept.iter().any(|(other, _)| within(other, &name)) {
            continue;
        }
        kept.retain(|(other, _)| !within(&name, other));
        kept.push((name, path));
    }
    kept.into_iter().map(|(_, path)| path).collect()
}

/// Resolves `.` and `..` in a path lexically.
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

/// Returns whether every component is a valid name. Drivers refuse invalid names, but the output
/// must be safe regardless.
fn is_plain(path: &[u8]) -> bool {
    let is_name = |name: &[u8]| !matches!(name, b"" | b"." | b"..") && !name.contains(&0);
    path.is_empty() || path.split(|&byte| byte == b'/').all(is_name)
}

/// Returns whether `path` is below directory `dir`, at any depth.
fn is_below(path: &[u8], dir: &[u8]) -> bool {
    if dir.is_empty() {
        return !path.is_empty();
    }
    path.strip_prefix(dir)
        .is_some_and(|rest| rest.starts_with(b"/"))
}

pub fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    match (dir, name) {
        (b"", name) => name.to_vec(),
        (dir, b"") => dir.to_vec(),
        (dir, name) => [dir, name].join(&b'/'),
    }
}

/// Returns the length of the first `components` components including the slash after them; `None`
/// if the path has no further component.
fn cut(path: &[u8], components: usize) -> Option<usize> {
    if components == 0 {
        return Some(0);
    }
    let slashes = path.iter().enumerate().filter(|&(_, &byte)| byte == b'/');
    slashes.map(|(at, _)| at + 1).nth(components - 1)
}

/// Converts an image error into a failure of the entry.
pub fn failure(entry: &Selected, source: Error) -> ExportError {
    ExportError::image(&entry.path, source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_leave_the_rest() {
        for (path, components, rest) in [
            (&b"a/b/c"[..], 0, Some(&b"a/b/c"[..])),
            (b"a/b/c", 1, Some(b"b/c")),
            (b"a/b/c", 2, Some(b"c")),
            (b"a/b/c", 3, None),
            (b"", 0, Some(b"")),
            (b"", 1, None),
        ] {
            let found = cut(path, components).map(|at| &path[at..]);
            assert_eq!(found, rest, "{path:?} {components}");
        }
    }

    #[test]
    fn a_start_below_another_is_none() {
        let select = |paths: &[&str]| Selection {
            paths: paths.iter().map(|path| path.as_bytes().to_vec()).collect(),
            ..Selection::default()
        };
        for (paths, expected) in [
            (&["a/b", "a", "ab"][..], &["a", "ab"][..]),
            (&["a", "/a/", "a/b"], &["a"]),
            (&["/", "a"], &["/"]),
            (&["a", "/"], &["/"]),
        ] {
            let selection = select(paths);
            let expected: Vec<_> = expected.iter().map(|path| path.as_bytes()).collect();
            assert_eq!(starts(&selection), expected, "{paths:?}");
        }
    }

    #[test]
    fn only_names_are_plain() {
        for (path, plain) in [
            (&b""[..], true),
            (b"a/b", true),
            (b"...", true),
            (b"a//b", false),
            (b"/a", false),
            (b"a/../b", false),
            (b"a/.", false),
            (b"a\0", false),
        ] {
            assert_eq!(is_plain(path), plain, "{path:?}");
        }
    }
}
