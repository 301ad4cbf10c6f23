//! Path resolution.

use std::collections::VecDeque;

use crate::{Bound, Error, FileSystem, FileType, Limits, NodeId, Result};

/// How to treat a symbolic link in the last component of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowLast {
    /// Follow it, as `stat` does.
    Yes,
    /// Return the link itself, as `lstat` does.
    No,
}

/// Resolves `path` from the root of the image to its node. Symbolic links resolve inside the image:
/// an absolute target starts at its root and `..` stops there.
///
/// # Errors
/// [`Error::NotFound`], [`Error::NotADirectory`], [`Error::SymlinkLoop`] after
/// [`Limits::symlink_hops`] links, [`Error::Limit`] for a path deeper than [`Limits::depth`], and
/// the errors of the driver.
pub fn resolve(
    fs: &dyn FileSystem,
    path: &[u8],
    last: FollowLast,
    limits: &Limits,
) -> Result<NodeId> {
    let found = follow(fs, path, last, limits)?;
    Ok(found.last().map_or(fs.root(), |(_, node)| *node))
}

/// Resolves `path` as [`resolve`] does, and follows a symbolic link in the last component. Returns
/// the node, and its path from the root without symbolic links, `.` and `..`: each name with a
/// slash before it, or a single slash for the root. A format that ignores case in names keeps the
/// spelling of `path`.
///
/// # Errors
/// The errors of [`resolve`].
pub fn canonicalize(
    fs: &dyn FileSystem,
    path: &[u8],
    limits: &Limits,
) -> Result<(NodeId, Vec<u8>)> {
    let found = follow(fs, path, FollowLast::Yes, limits)?;
    let mut canonical = Vec::new();
    for (name, _) in &found {
        canonical.push(b'/');
        canonical.extend_from_slice(name);
    }
    if canonical.is_empty() {
        canonical.push(b'/');
    }
    Ok((found.last().map_or(fs.root(), |(_, node)| *node), canonical))
}

/// Returns the names and nodes on the way from the root, which is left out, to the node of `path`.
fn follow(
    fs: &dyn FileSystem,
    path: &[u8],
    last: FollowLast,
    limits: &Limits,
) -> Result<Vec<(Vec<u8>, NodeId)>> {
    let mut found: Vec<(Vec<u8>, NodeId)> = Vec::new();
    let mut pending: VecDeque<Vec<u8>> = components(path).map(<[u8]>::to_vec).collect();
    let mut hops = 0;
    while let Some(name) = pending.pop_front() {
        let dir = found.last().map_or(fs.root(), |(_, node)| *node);
        if name == b"." || name == b".." {
            if fs.metadata(dir)?.kind != FileType::Directory {
                return Err(Error::NotADirectory);
            }
            if name == b".." {
                found.pop();
            }
            continue;
        }
        let node = fs.lookup(dir, &name)?.ok_or(Error::NotFound)?;
        let is_last = pending.is_empty();
        if fs.metadata(node)?.kind == FileType::Symlink && !(is_last && last == FollowLast::No) {
            hops += 1;
            if hops > limits.symlink_hops {
                return Err(Error::SymlinkLoop);
            }
            let target = fs.read_link(node)?;
            if target.starts_with(b"/") {
                found.clear();
            }
            for name in components(&target).rev() {
                pending.push_front(name.to_vec());
            }
            continue;
        }
        if found.len() >= limits.depth {
            return Err(Error::limit(
                Bound::Depth,
                "depth of a path",
                forerun_io::u64_from(limits.depth),
            ));
        }
        found.push((name, node));
    }
    Ok(found)
}

/// Returns the names of a path. A trailing slash requires a directory; a final `.` in the names
/// checks that.
fn components(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    let names = path
        .split(|&byte| byte == b'/')
        .filter(|name| !name.is_empty() && *name != b".");
    let slash = path.ends_with(b"/") || path.ends_with(b"/.");
    names.chain(slash.then_some(&b"."[..]))
}
