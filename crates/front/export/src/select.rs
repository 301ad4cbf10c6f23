//! The part of an image that is wanted, and its names in the output.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use forerun_build::Patterns;
use forerun_engine::Reader;
use forerun_vfs::{Error, FileType, FollowLast, Held, Metadata, NodeId, resolve};

use crate::{ExportError, expand};

/// A choice of entries. The default is all of them.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Paths in the image, each taken with everything below it; none means the root.
    pub paths: Vec<Vec<u8>>,
    /// Where there are any, only what one of these covers is taken.
    pub include: Patterns,
    /// Paths that one of these covers are left out.
    pub exclude: Patterns,
    /// A further choice, which the caller makes entry by entry.
    pub filter: Filter,
    /// Leading components cut off the paths; entries with no more than these are left out.
    pub strip_components: usize,
}

/// A choice that the caller makes for each entry. The default takes all.
#[derive(Clone, Default)]
pub struct Filter(Option<Arc<Takes>>);

/// Returns whether to take an entry, by its path and whether it is a directory.
type Takes = dyn Fn(&[u8], bool) -> bool + Send + Sync;

impl Filter {
    /// Creates a filter. `takes` gets the path in the image, without a leading slash, and whether it is a
    /// directory; what is below a directory that is not taken is not asked for.
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
    /// Returns how many members of the image are in no selection, where this one takes all of the tree.
    pub fn left_out(&self, reader: &Reader) -> u64 {
        if self.paths.iter().all(|path| trim(path).is_empty()) {
            reader.fs().volume().left_out
        } else {
            0
        }
    }

    /// Replaces paths with wildcards by the paths in the image that they stand for.
    ///
    /// # Errors
    /// The errors of [`expand`].
    pub fn expand(&mut self, reader: &Reader) -> Result<(), ExportError> {
        let mut paths = Vec::with_capacity(self.paths.len());
        for path in &self.paths {
            paths.extend(expand(reader, path)?);
        }
        self.paths = paths;
        Ok(())
    }
}

/// An entry that was chosen.
#[derive(Debug)]
pub struct Selected {
    /// Path in the image, without a leading slash; empty for the root.
    pub path: Vec<u8>,
    /// The node that it names.
    pub node: NodeId,
    pub metadata: Metadata,
    /// A directory that was not chosen itself: it leads to something that was.
    pub implied: bool,
    /// Bytes of the path that are cut off in the output.
    cut: usize,
}

impl Selected {
    /// Creates an entry that is taken under its own path.
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

    /// Returns the path in the output; it is empty for what becomes the target itself.
    pub fn name(&self) -> &[u8] {
        &self.path[self.cut..]
    }
}

/// An entry or a failure that [`visit`] meets.
pub enum Found {
    /// Directories come before what is in them.
    Entry(Selected),
    /// Entries that could not be looked at.
    Failure(ExportError),
}

/// The result of [`select`].
#[derive(Debug, Default)]
pub struct Chosen {
    /// In the order of the walk: directories before what is in them.
    pub entries: Vec<Selected>,
    /// Entries that could not be looked at.
    pub failures: Vec<ExportError>,
}

/// Bytes that an allocation takes besides what it was asked for.
const ALLOCATION: usize = 16;

/// Walks the image, chooses, and keeps what was chosen in memory. `more` is the memory that the caller
/// takes for each entry besides.
///
/// # Errors
/// As [`visit`]; also more entries than [`Limits::walk_bytes`](forerun_vfs::Limits::walk_bytes) allows.
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

/// Counts the memory of a failure that is kept for the report.
///
/// # Errors
/// The limit, at the path of the failure.
pub fn hold_failure(held: &mut Held, failed: &ExportError) -> Result<(), ExportError> {
    let path = match failed {
        ExportError::Image { path, .. } | ExportError::LeftOut { path, .. } => path.as_slice(),
        _ => b"",
    };
    let counted = held.add(size_of::<ExportError>() + path.len() + ALLOCATION);
    counted.map_err(|error| ExportError::image(path, error))
}

/// Walks the image and passes on the chosen entries.
///
/// # Errors
/// A path of the selection that is not there, and those of the visitor. Damage further down is passed on
/// as a failure.
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
    /// Directories above the current place that were not taken yet, outermost first.
    pending: Vec<Selected>,
}

impl Scan<'_> {
    /// Implies the directories that lead to the start.
    fn above(&mut self, start: &[u8]) {
        let slashes = start.iter().enumerate().filter(|&(_, &byte)| byte == b'/');
        let ends: Vec<_> = slashes.map(|(at, _)| at).collect();
        for path in ends.into_iter().filter_map(|end| start.get(..end)) {
            let fs = self.reader.fs();
            let node = resolve(fs, path, FollowLast::Yes, self.reader.limits());
            // A directory that cannot be read is made with the system's defaults.
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
                let reason = "its name could lead elsewhere";
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

    /// Remembers a directory, for the case that something below it is taken.
    fn imply(&mut self, path: &[u8], node: NodeId, metadata: Metadata) {
        self.leave(path);
        if metadata.kind == FileType::Directory {
            let selected = self.selected(path.to_vec(), node, metadata, true);
            self.pending.extend(selected);
        }
    }

    /// Forgets the pending directories that `path` is not below.
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
    /// Counts the bytes of all regular files; a file with several names is counted once.
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

    /// Checks the bytes to be written against the limit.
    pub fn check_limit(&self, limit: u64) -> Result<u64, ExportError> {
        within(self.content_bytes(), limit)
    }
}

/// Checks the bytes to be written against the limit.
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

/// Selects the paths to start from, without those that lie below another one of them.
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

/// Resolves `.` and `..` in a path by name, as the output will show it.
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

/// Returns whether every component is a name. Drivers refuse what is none; the output must be safe whatever
/// they do.
fn is_plain(path: &[u8]) -> bool {
    let is_name = |name: &[u8]| !matches!(name, b"" | b"." | b"..") && !name.contains(&0);
    path.is_empty() || path.split(|&byte| byte == b'/').all(is_name)
}

/// Returns whether `path` lies in the directory `dir`, at any depth.
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

/// Counts the bytes of the first `components` of a path, with the slash after them; nothing where the
/// path has no more components than these.
fn cut(path: &[u8], components: usize) -> Option<usize> {
    if components == 0 {
        return Some(0);
    }
    let slashes = path.iter().enumerate().filter(|&(_, &byte)| byte == b'/');
    slashes.map(|(at, _)| at + 1).nth(components - 1)
}

/// Turns an image's error into a failure of the entry.
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
