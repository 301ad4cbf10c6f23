//! Iterators over directory entries and tree walks.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::ops::ControlFlow;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use forerun_vfs::{Bound, DirCursor, FileType, Metadata, NodeId};

use crate::error::{Error, Result};
use crate::file::File;
use crate::image::Image;
use crate::xattrs::Xattrs;

/// Memory that a directory iterator uses for names, in bytes.
const BATCH: usize = 64 << 10;

/// An entry of a directory, or a node visited by a walk. It keeps the image open.
///
/// Its methods do not resolve the path again, and do not follow symbolic links.
#[derive(Clone, Debug)]
pub struct DirEntry {
    image: Image,
    path: PathBuf,
    node: NodeId,
    kind: FileType,
    known: Option<Metadata>,
}

impl DirEntry {
    /// Returns the path of the directory, as the caller gave it, with the entry's name appended.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the name: any bytes except `/` and NUL, and not always UTF-8.
    #[must_use]
    pub fn name(&self) -> &OsStr {
        self.path.file_name().unwrap_or(self.path.as_os_str())
    }

    /// Returns the file type, without reading the image.
    #[must_use]
    pub const fn file_type(&self) -> FileType {
        self.kind
    }

    /// Returns the node, for the [`Reader`](crate::Reader) of the image.
    #[must_use]
    pub const fn node(&self) -> NodeId {
        self.node
    }

    /// Returns the metadata as `lstat` shows it. An entry of [`ReadDir`] reads it now; a walk has
    /// already read it.
    ///
    /// # Errors
    /// The errors of [`FileSystem::metadata`](forerun_vfs::FileSystem::metadata).
    pub fn metadata(&self) -> Result<Metadata> {
        match &self.known {
            Some(metadata) => Ok(metadata.clone()),
            None => self.named(self.image.reader().fs().metadata(self.node)),
        }
    }

    /// Opens the entry, which must be a regular file.
    ///
    /// # Errors
    /// The errors of [`Image::file`], and an error for a symbolic link.
    pub fn file(&self) -> Result<File> {
        self.named(File::open(&self.image, &self.path, self.node))
    }

    /// Reads the whole entry, which must be a regular file.
    ///
    /// # Errors
    /// The errors of [`Image::read`], and an error for a symbolic link.
    pub fn read(&self) -> Result<Vec<u8>> {
        self.named(self.file()?.contents())
    }

    /// Returns the target of the entry, which must be a symbolic link.
    ///
    /// # Errors
    /// The errors of [`Image::read_link`].
    pub fn read_link(&self) -> Result<PathBuf> {
        let target = self.image.reader().fs().read_link(self.node);
        self.named(target)
            .map(|target| OsString::from_vec(target).into())
    }

    /// Returns the extended attributes.
    ///
    /// # Errors
    /// The errors of [`Image::xattrs`].
    pub fn xattrs(&self) -> Result<Xattrs> {
        self.named(self.image.xattrs_of(self.node))
    }

    fn named<T>(&self, result: forerun_vfs::Result<T>) -> Result<T> {
        result.map_err(|error| self.image.failed(&self.path, error))
    }
}

/// An iterator over the entries of a directory, in the image's order. It buffers a part of them,
/// and keeps the image open.
///
/// After an error, the iterator ends.
pub struct ReadDir {
    image: Image,
    dir: PathBuf,
    node: NodeId,
    batch: VecDeque<(Vec<u8>, NodeId, FileType)>,
    /// Cursor of the next batch; `None` after the last one.
    next: Option<DirCursor>,
    entries: u64,
    failed: Option<Error>,
}

impl fmt::Debug for ReadDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadDir")
            .field("dir", &self.dir)
            .finish_non_exhaustive()
    }
}

impl ReadDir {
    /// Creates the iterator over a directory node. `dir` is its path in entries and errors.
    pub(crate) fn new(image: &Image, dir: &Path, node: NodeId) -> forerun_vfs::Result<Self> {
        if !image.reader().fs().metadata(node)?.is_dir() {
            return Err(forerun_vfs::Error::NotADirectory);
        }
        Ok(Self {
            image: image.clone(),
            dir: dir.to_path_buf(),
            node,
            batch: VecDeque::new(),
            next: Some(DirCursor::START),
            entries: 0,
            failed: None,
        })
    }

    /// Reads the entries after `from`. Keeps the entries before an error.
    fn fill(&mut self, from: DirCursor) -> forerun_vfs::Result<()> {
        let Self {
            batch,
            next,
            entries,
            ..
        } = self;
        let limit = self.image.reader().limits().dir_entries;
        let (mut held, mut over) = (0, false);
        let fs = self.image.reader().fs();
        let read = fs.read_dir(self.node, from, &mut |entry| {
            if *entries >= limit {
                over = true;
                return ControlFlow::Break(());
            }
            *entries += 1;
            held += entry.name.len() + size_of::<(Vec<u8>, NodeId, FileType)>();
            batch.push_back((entry.name.to_vec(), entry.node, entry.kind));
            if held >= BATCH {
                *next = Some(entry.next);
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        if over {
            let what = format!("number of entries at directory {}", self.node);
            return Err(forerun_vfs::Error::limit(Bound::Entries, what, limit));
        }
        read
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((name, node, kind)) = self.batch.pop_front() {
                return Some(Ok(DirEntry {
                    image: self.image.clone(),
                    path: self.dir.join(OsStr::from_bytes(&name)),
                    node,
                    kind,
                    known: None,
                }));
            }
            if let Some(error) = self.failed.take() {
                return Some(Err(error));
            }
            let from = self.next.take()?;
            if let Err(error) = self.fill(from) {
                self.next = None;
                self.failed = Some(self.image.failed(&self.dir, error));
            }
        }
    }
}

/// A walk of a tree: the start and everything below it, each directory before its contents.
/// Symbolic links are returned but not followed.
///
/// The walk buffers a part of each directory on the way to the current entry, within
/// [`Limits::walk_bytes`](crate::Limits::walk_bytes). An error concerns one entry or directory,
/// which its path names; the walk continues after it. It ends on every image.
pub struct Walk<'i> {
    image: Cow<'i, Image>,
    start: PathBuf,
    walk: forerun_vfs::Walk<'i>,
}

impl fmt::Debug for Walk<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Walk")
            .field("start", &self.start)
            .finish_non_exhaustive()
    }
}

impl Walk<'static> {
    /// Creates a walk that keeps the image open. `start` is the path of `node` in entries and
    /// errors.
    pub(crate) fn shared(image: Image, start: &Path, node: NodeId) -> Self {
        Self {
            walk: image.reader().shared_walk(node),
            image: Cow::Owned(image),
            start: start.to_path_buf(),
        }
    }
}

impl<'i> Walk<'i> {
    /// Creates a walk that borrows the image. `start` is the path of `node` in entries and errors.
    pub(crate) fn new(image: &'i Image, start: &Path, node: NodeId) -> Self {
        Self {
            walk: image.reader().walk(node),
            image: Cow::Borrowed(image),
            start: start.to_path_buf(),
        }
    }

    /// Skips the contents of the directory that was returned last.
    pub fn skip_children(&mut self) {
        self.walk.skip_children();
    }

    /// Converts a path below the start to a full path.
    fn path(&self, below: &[u8]) -> PathBuf {
        match below {
            [] => self.start.clone(),
            below => self.start.join(OsStr::from_bytes(below)),
        }
    }
}

impl Iterator for Walk<'_> {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        let met = match self.walk.next()? {
            Ok(met) => met,
            Err(failed) => {
                let path = self.path(&failed.path);
                return Some(Err(self.image.failed(&path, failed.error)));
            }
        };
        let path = self.path(&met.path);
        Some(match met.metadata {
            Ok(metadata) => Ok(DirEntry {
                image: Image::clone(&self.image),
                path,
                node: met.node,
                kind: metadata.kind,
                known: Some(metadata),
            }),
            Err(error) => Err(self.image.failed(&path, error)),
        })
    }
}
