//! Calls every method of a filesystem on every node, for fuzz targets and tests of hostile images.
//! Not for users.
//!
//! Reads no file data. Defects of an image are returned as errors. Panics only if a driver breaks
//! its contract.

use std::ops::ControlFlow;
use std::sync::Arc;

use forerun_io::{Limits, ReadAt, usize_from};

use crate::{
    DirCursor, Error, Extent, FileSystem, FileType, Format, NodeId, OpenWith, Result, Walk,
};

/// Most extents visited per file; a file may have as many as it has blocks.
const EXTENTS: u64 = 10_000;
/// Most extents per file that are mapped again from each of their borders.
const BORDERS: u64 = 64;
/// Longest value of an extended attribute in any format.
const LONGEST_VALUE: usize = 65_536;

/// Returns limits under which every input takes milliseconds.
#[must_use]
pub fn limits() -> Limits {
    let mut limits = Limits::default();
    limits.depth = 32;
    limits.dir_entries = 1000;
    limits.tree_entries = 2000;
    limits.total_bytes = 16 << 20;
    limits.block_len = 1 << 20;
    limits.xattr_bytes = 1 << 20;
    limits
}

/// Opens the image in `source` and calls every method on every node. Returns the errors, and the
/// problems that `check` reports.
///
/// # Panics
/// If the driver breaks its contract.
pub fn walk(format: &Format, source: Arc<dyn ReadAt>) -> Vec<Error> {
    let mut with = OpenWith::new(source);
    with.limits = limits();
    match (format.open)(with) {
        Ok(fs) => all(&*fs, &limits()),
        Err(error) => vec![error],
    }
}

/// Calls every method on every node of a walk. Returns the errors, and the problems that `check`
/// reports.
///
/// # Panics
/// If the driver breaks its contract.
pub fn all(fs: &dyn FileSystem, limits: &Limits) -> Vec<Error> {
    let mut errors = Vec::new();
    let mut problems = Vec::new();
    let checked = fs.check(None, &mut |found| problems.push(found.error));
    errors.extend(checked.err());
    errors.extend(fs.describe(None).err());
    let image_len = fs.volume().image_len;
    for range in fs.metadata_layout().ranges() {
        assert!(range.start < range.end && range.end <= image_len);
    }
    let capabilities = fs.capabilities();
    if let Some(layout) = capabilities.layout {
        errors.extend(layout.regions(&mut |_| ControlFlow::Continue(())).err());
        let _answers = (layout.wanted_ahead(), layout.names_max());
    }
    if let Some(layered) = capabilities.layered {
        layered.links_below(&mut |_, path| assert!(!path.is_empty()));
    }
    let mut met = 0_u64;
    for entry in Walk::new(fs, fs.root(), limits) {
        met += 1;
        // Each directory can give one error besides its entries.
        assert!(met <= 2 * limits.tree_entries + 2, "the walk goes on");
        match entry {
            Ok(entry) => match node(fs, entry.node, limits) {
                Ok(found) => problems.extend(found),
                Err(error) => errors.push(error),
            },
            Err(failed) => errors.push(failed.error),
        }
    }
    errors.extend(problems);
    errors
}

/// Calls every method on one node. Returns the problems that `check` reports for it.
///
/// # Errors
/// The first error.
///
/// # Panics
/// If the driver breaks its contract.
pub fn node(fs: &dyn FileSystem, node: NodeId, limits: &Limits) -> Result<Vec<Error>> {
    let mut problems = Vec::new();
    fs.check(Some(node), &mut |found| problems.push(found.error))?;
    let metadata = fs.metadata(node)?;
    fs.xattrs(node, &mut |name, value| {
        assert!(!name.is_empty() && value.len() <= LONGEST_VALUE);
    })?;
    match metadata.kind {
        FileType::Directory => directory(fs, node, limits)?,
        FileType::Symlink => assert!(!fs.read_link(node)?.is_empty()),
        FileType::Regular => file(fs, node, metadata.size)?,
        FileType::BlockDevice | FileType::CharDevice | FileType::Fifo | FileType::Socket => {}
    }
    fs.describe(Some(node))?;
    let _answers = (fs.is_guess(node), fs.is_implied(node));
    fs.file_sum(node)?;
    if let Some(layout) = fs.capabilities().layout {
        let _answer = layout.inode_offset(node);
        layout.regions_of(node, &mut |_| ControlFlow::Continue(()))?;
    }
    Ok(problems)
}

fn directory(fs: &dyn FileSystem, node: NodeId, limits: &Limits) -> Result<()> {
    let mut left = usize_from(limits.dir_entries);
    // A program may seek to any position of a directory.
    for cursor in [Extent::LAST, u64::MAX].map(DirCursor) {
        let _outcome = fs.read_dir(node, cursor, &mut |_| ControlFlow::Break(()));
    }
    fs.read_dir(node, DirCursor::START, &mut |entry| {
        assert!(entry.next != DirCursor::START);
        // A mount makes such a short call for each cursor.
        let _outcome = fs.read_dir(node, entry.next, &mut |_| ControlFlow::Break(()));
        let _outcome = fs.lookup(node, entry.name);
        left -= 1;
        match left {
            0 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    })?;
    fs.lookup(node, b"no such name").map(|_| ())
}

fn file(fs: &dyn FileSystem, node: NodeId, size: u64) -> Result<()> {
    let (mut at, mut left) = (0, EXTENTS);
    let mut probes = vec![size / 2];
    fs.map(node, 0..u64::MAX, &mut |extent| {
        assert_eq!(extent.logical.start, at, "extents have no gaps");
        assert!(extent.logical.end > at && extent.logical.end <= size);
        assert!(extent.is_addressable(), "{extent:?}");
        if EXTENTS - left < BORDERS {
            probes.extend([at, extent.logical.end - 1]);
        }
        at = extent.logical.end;
        left -= 1;
        match left {
            0 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    })?;
    assert!(at == size || left == 0, "the map ends with the file");
    for position in probes {
        fs.map(node, position..position + 1, &mut |extent| {
            assert!(extent.logical.contains(&position));
            ControlFlow::Break(())
        })?;
    }
    Ok(())
}
