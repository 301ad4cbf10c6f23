//! Compares two trees: two images, or an image and a directory.
//!
//! Compares every property that both sides store. Contents are compared byte for byte, because
//! equal sizes and times prove nothing. First both trees are walked, then metadata is compared, and
//! finally contents are read in the physical order of one side, on several threads with readahead.
//! Differences are reported in path order.

mod compare;
mod contents;
mod entry;
mod host;
mod image;

use std::cmp::Ordering;
use std::path::Path;

use forerun_build::Patterns;
use forerun_engine::Reader;
use forerun_io::u64_from;
use forerun_vfs::{Device, FileType, Held, Limits, Timestamp};

use crate::{ExportError, Progress};
use entry::Tree;

/// The attribute that has the capabilities of a program.
const CAPABILITY: &[u8] = b"security.capability";

#[derive(Clone, Copy, Debug)]
pub enum Side<'a> {
    Image(&'a Reader),
    /// A directory of the host.
    Directory(&'a Path),
}

#[derive(Clone, Debug, Default)]
pub struct DiffOptions {
    pub ignore_mtime: bool,
    pub ignore_owner: bool,
    pub ignore_mode: bool,
    pub ignore_xattrs: bool,
    /// Ignore which names are hard links to the same file.
    pub ignore_links: bool,
    /// Compare only matching paths; empty means all.
    pub include: Patterns,
    /// Do not compare matching paths.
    pub exclude: Patterns,
    /// Number of threads that compare contents; 0 means one per CPU.
    pub threads: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Path without a leading slash; empty for the root.
    pub path: Vec<u8>,
    pub change: Change,
}

/// A difference, with the left and the right value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// Exists only on the right, with these permission bits.
    Added(FileType, u16),
    /// Exists only on the left.
    Removed(FileType),
    /// Type of the node. Nothing else is compared then.
    Kind(FileType, FileType),
    /// Permission bits; only executability if one side stores nothing more.
    Mode(u16, u16),
    Owner((u32, u32), (u32, u32)),
    /// Modification time; fractions of seconds count only if both sides have them.
    Mtime(Timestamp, Timestamp),
    /// Length of a regular file. Contents are not compared then.
    Size(u64, u64),
    /// Offset of the first different byte of a regular file.
    Content(u64),
    Target(Vec<u8>, Vec<u8>),
    Device(Device, Device),
    /// The first of the file's hard-linked names in path order; `None` if the file has only one
    /// name.
    Link(Option<Vec<u8>>, Option<Vec<u8>>),
    /// Name of an extended attribute, and its value on each side that has it.
    Xattr(Vec<u8>, Option<Vec<u8>>, Option<Vec<u8>>),
}

impl Change {
    /// Returns a short stable name of the kind of difference.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Added(..) => "added",
            Self::Removed(_) => "removed",
            Self::Kind(..) => "type",
            Self::Mode(..) => "mode",
            Self::Owner(..) => "owner",
            Self::Mtime(..) => "mtime",
            Self::Size(..) => "size",
            Self::Content(_) => "content",
            Self::Target(..) => "target",
            Self::Device(..) => "device",
            Self::Link(..) => "link",
            Self::Xattr(..) => "xattr",
        }
    }

    /// Returns why the difference may give somebody more rights, or `None`.
    #[must_use]
    pub fn privilege(&self) -> Option<&'static str> {
        match self {
            Self::Added(FileType::Regular, mode) if mode & 0o4000 != 0 => Some("set-user-ID"),
            Self::Added(FileType::Regular, mode) if mode & 0o2000 != 0 => Some("set-group-ID"),
            Self::Added(FileType::CharDevice | FileType::BlockDevice, _) | Self::Device(..) => {
                Some("device")
            }
            Self::Mode(left, right) if right & !left & 0o4000 != 0 => Some("set-user-ID"),
            Self::Mode(left, right) if right & !left & 0o2000 != 0 => Some("set-group-ID"),
            Self::Mode(..) => Some("mode"),
            Self::Owner(..) => Some("owner"),
            Self::Xattr(name, ..) if name == CAPABILITY => Some("capabilities"),
            _ => None,
        }
    }

    fn bytes(&self) -> usize {
        let len = |text: &Option<Vec<u8>>| text.as_ref().map_or(0, Vec::len);
        match self {
            Self::Target(old, new) => old.len() + new.len(),
            Self::Link(old, new) => len(old) + len(new),
            Self::Xattr(name, old, new) => name.len() + len(old) + len(new),
            Self::Added(..)
            | Self::Removed(_)
            | Self::Kind(..)
            | Self::Mode(..)
            | Self::Owner(..)
            | Self::Mtime(..)
            | Self::Size(..)
            | Self::Content(_)
            | Self::Device(..) => 0,
        }
    }
}

#[derive(Debug, Default)]
pub struct DiffReport {
    pub compared: u64,
    /// Bytes of contents compared, including holes on both sides.
    pub bytes: u64,
    pub differences: u64,
    /// Whether owners, times and full permissions were not compared because a side does not store
    /// them.
    pub without_owners: bool,
    /// Whether times were not compared because a side has no comparable times.
    pub without_times: bool,
    /// Entries on the left and on the right that could not be read.
    pub failures: (Vec<ExportError>, Vec<ExportError>),
}

/// Compares two trees and calls `report` for each difference.
///
/// # Errors
/// A root cannot be opened, or entries and differences exceed the memory limit
/// [`Limits::walk_bytes`](forerun_vfs::Limits::walk_bytes). Errors below the roots are in the
/// report.
pub fn diff(
    left: Side<'_>,
    right: Side<'_>,
    options: &DiffOptions,
    progress: &dyn Progress,
    report: &mut dyn FnMut(Difference),
) -> Result<DiffReport, ExportError> {
    progress.begin(0, 0);
    let mut done = DiffReport::default();
    let mut held = held(left, right);
    let left_tree = tree(left, options, &mut held, &mut done.failures.0)?;
    let right_tree = tree(right, options, &mut held, &mut done.failures.1)?;
    let keeps = compare::Keeps::of(left, right, options);
    done.without_owners = !keeps.owners_kept;
    done.without_times = !keeps.times_kept;
    let mut found = Vec::new();
    let mut pairs = Vec::new();
    let mut merge = Merge::new(&left_tree, &right_tree);
    while let Some((left_entry, right_entry)) = merge.next() {
        let (path, mut changes) = match (left_entry, right_entry) {
            (Some(old), Some(new)) => {
                done.compared += 1;
                let mut changes = Vec::new();
                compare::entries(old, new, &keeps, &mut changes);
                xattrs(left, right, (old, new), &keeps, &mut changes, &mut done);
                let same_length = old.metadata.size == new.metadata.size;
                let files = |entry: &entry::Entry| entry.metadata.kind == FileType::Regular;
                if files(old) && files(new) && same_length && old.metadata.size > 0 {
                    pairs.push(contents::Pair { old, new });
                }
                (&old.path, changes)
            }
            (Some(old), None) => (&old.path, vec![Change::Removed(old.metadata.kind)]),
            (None, Some(new)) => {
                let added = Change::Added(new.metadata.kind, new.metadata.mode);
                let capability = capability(right, new, &keeps, &mut done);
                (
                    &new.path,
                    [Some(added), capability].into_iter().flatten().collect(),
                )
            }
            (None, None) => break,
        };
        for change in changes.drain(..) {
            let bytes = size_of::<Difference>() + path.len() + change.bytes();
            held.add(bytes)
                .map_err(|error| ExportError::image(path, error))?;
            found.push(Difference {
                path: path.clone(),
                change,
            });
        }
    }
    let outcome = contents::compare(left, right, pairs, options.threads, progress);
    done.bytes = outcome.bytes;
    found.extend(outcome.differences);
    done.failures.0.extend(outcome.failures.0);
    done.failures.1.extend(outcome.failures.1);
    // A stable sort keeps a path's differences in the order of comparison.
    found.sort_by(|one, other| one.path.cmp(&other.path));
    done.differences = u64_from(found.len());
    found.into_iter().for_each(report);
    Ok(done)
}

/// Creates the memory budget shared by both trees and the differences: the smaller limit of the two
/// images.
fn held(left: Side<'_>, right: Side<'_>) -> Held {
    let mut limits = Limits::default();
    let images = [left, right].map(|side| match side {
        Side::Image(reader) => reader.limits().walk_bytes,
        Side::Directory(_) => u64::MAX,
    });
    limits.walk_bytes = images[0].min(images[1]);
    Held::new(&limits)
}

fn tree(
    side: Side<'_>,
    options: &DiffOptions,
    held: &mut Held,
    failures: &mut Vec<ExportError>,
) -> Result<Tree, ExportError> {
    let entries = match side {
        Side::Image(reader) => image::entries(reader, options, held, failures)?,
        Side::Directory(path) => host::entries(path, options, failures)?,
    };
    Ok(Tree::new(entries))
}

fn xattrs(
    left: Side<'_>,
    right: Side<'_>,
    (old, new): (&entry::Entry, &entry::Entry),
    keeps: &compare::Keeps,
    changes: &mut Vec<Change>,
    done: &mut DiffReport,
) {
    if !keeps.xattrs || old.metadata.kind != new.metadata.kind {
        return;
    }
    match (xattrs_of(left, old), xattrs_of(right, new)) {
        (Ok(old), Ok(new)) => compare::xattrs(&old, &new, changes),
        (old, new) => {
            done.failures.0.extend(old.err());
            done.failures.1.extend(new.err());
        }
    }
}

/// Returns the capabilities of a new program.
fn capability(
    right: Side<'_>,
    new: &entry::Entry,
    keeps: &compare::Keeps,
    done: &mut DiffReport,
) -> Option<Change> {
    if !keeps.xattrs || new.metadata.kind != FileType::Regular {
        return None;
    }
    match xattrs_of(right, new) {
        Ok(mut xattrs) => {
            let value = xattrs.remove(CAPABILITY)?;
            Some(Change::Xattr(CAPABILITY.to_vec(), None, Some(value)))
        }
        Err(error) => {
            done.failures.1.push(error);
            None
        }
    }
}

fn xattrs_of(side: Side<'_>, entry: &entry::Entry) -> Result<compare::Xattrs, ExportError> {
    match side {
        Side::Image(reader) => image::xattrs(reader, entry),
        Side::Directory(path) => host::xattrs(path, entry),
    }
}

/// Merges both trees in path order.
struct Merge<'t> {
    left: std::iter::Peekable<std::slice::Iter<'t, entry::Entry>>,
    right: std::iter::Peekable<std::slice::Iter<'t, entry::Entry>>,
}

impl<'t> Merge<'t> {
    fn new(left: &'t Tree, right: &'t Tree) -> Self {
        Self {
            left: left.entries.iter().peekable(),
            right: right.entries.iter().peekable(),
        }
    }

    fn next(&mut self) -> Option<(Option<&'t entry::Entry>, Option<&'t entry::Entry>)> {
        let order = match (self.left.peek(), self.right.peek()) {
            (Some(left), Some(right)) => left.path.cmp(&right.path),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return None,
        };
        Some(match order {
            Ordering::Less => (self.left.next(), None),
            Ordering::Greater => (None, self.right.next()),
            Ordering::Equal => (self.left.next(), self.right.next()),
        })
    }
}
