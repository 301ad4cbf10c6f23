//! Builds one tree from several files and directories of the host, each under a name in the root.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::super::host::{Identity, Root};
use super::super::{BuildError, NodeKind, Tree};
use super::{Pending, Scan, ScanOptions, host};

/// A file or directory, and its name in the root of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedSource {
    /// Path on the host. A symbolic link is not followed.
    pub path: PathBuf,
    pub name: Vec<u8>,
}

/// Reads all sources like [`scan`](super::scan). Several names of one file become hard links, even
/// across sources. The root is a new directory, whose attributes the caller sets. With `skipped`,
/// unreadable files are skipped, like in [`scan_readable`](super::scan_readable). Two sources with
/// the same name are a [`BuildError::Conflict`].
pub fn scan_sources(
    sources: &[NamedSource],
    options: &ScanOptions,
    mut skipped: Option<&mut dyn FnMut(BuildError)>,
) -> Result<Tree, BuildError> {
    let (mut tree, mut links) = (Tree::default(), std::collections::HashMap::new());
    for source in sources {
        let failed = |error| host(&source.path, error);
        let is_dir = source.path.symlink_metadata().map_err(failed)?.is_dir();
        let (at, name) = if is_dir {
            (source.path.as_path(), OsStr::new(""))
        } else {
            split(&source.path)
        };
        let root = Root::open(at).map_err(failed)?;
        let skipped: Option<&mut dyn FnMut(BuildError)> = match &mut skipped {
            Some(skipped) => Some(&mut **skipped),
            None => None,
        };
        let mut scan = Scan::new(options, root, skipped);
        (scan.tree, scan.links) = (tree, links);
        scan.is_repeated = sources.len() > 1;
        if is_dir {
            scan.source_dir(source)?
        } else {
            scan.source_file(name, &source.name)?
        }
        (tree, links) = (scan.tree, scan.links);
    }
    tree.shrink_to_fit();
    Ok(tree)
}

/// Splits a path into parent directory and file name.
fn split(path: &Path) -> (&Path, &OsStr) {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    (
        dir.unwrap_or(Path::new(".")),
        path.file_name().unwrap_or(path.as_os_str()),
    )
}

impl Scan<'_, '_> {
    /// Adds a directory, which is the root of the scan, and everything below it.
    fn source_dir(&mut self, source: &NamedSource) -> Result<(), BuildError> {
        if self.options.exclude.matches(&source.name) {
            return Ok(());
        }
        let stat = self.root.stat();
        let stat = stat.map_err(|error| host(&source.path, error))?;
        let seen = Identity::of(&stat);
        if self.options.skip.contains(&seen.numbers()) {
            return Ok(());
        }
        (self.device, self.prefix) = (stat.st_dev, OsStr::from_bytes(&source.name).into());
        let mut top = Pending {
            path: PathBuf::new(),
            node: Tree::ROOT,
            seen,
        };
        let dir = self.open(&top)?;
        let kind = NodeKind::Directory(BTreeMap::new());
        let node = self.node(&dir, Path::new(""), &stat, kind)?;
        top.node = self.tree.add(Tree::ROOT, &source.name, node)?;
        self.descend(vec![top])
    }

    /// Adds a file from the directory that is the root of the scan.
    fn source_file(&mut self, name: &OsStr, new_name: &[u8]) -> Result<(), BuildError> {
        let root = Arc::clone(&self.root);
        let stat = root.stat();
        let stat = stat.map_err(|error| self.failed(Path::new(""), error))?;
        let top = Pending {
            path: PathBuf::new(),
            node: Tree::ROOT,
            seen: Identity::of(&stat),
        };
        let dir = self.open(&top)?;
        // The entry is no longer a directory, so nothing is pending afterwards.
        let mut pending = Vec::new();
        let added = self.entry(&top, &dir, (name, new_name), &mut pending);
        self.or_skip(added)?;
        self.descend(pending)
    }
}
