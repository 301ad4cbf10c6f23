//! Builds a tree from an image of any readable format: the first step of `convert`.
//!
//! Only the metadata is read. Contents are read ahead from the image while the new one is written,
//! without temporary files.

use std::collections::HashMap;
use std::io::{self, Read};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use forerun_build::{
    BuildError, Content, ContentSource, ContentStream, NewNode, NodeIndex, NodeKind, Patterns, Tree,
};
use forerun_engine::Reader;
use forerun_io::{u64_from, usize_from};
use forerun_vfs::{
    Bound, Error, Extent, FileSum, FileType, Held, Metadata, NodeId, Timestamp, WalkEntry,
};

/// Which parts of an image are copied.
#[derive(Clone, Debug, Default)]
pub struct ImageOptions {
    /// Paths to leave out, with everything below them.
    pub exclude: Patterns,
    /// Whether to copy extended attributes. Without them, files get the modes that they have
    /// without POSIX ACLs.
    pub xattrs: bool,
    /// The time of directories that only the paths of an archive name, in place of the epoch.
    pub implied: Option<Timestamp>,
}

/// Reads the tree of an image. Hard links stay hard links. The reader's limits apply;
/// [`total_bytes`](forerun_vfs::Limits::total_bytes) bounds the sum of all files.
///
/// # Errors
/// [`BuildError::Image`] with the path at which the image is damaged or a limit is reached: a
/// damaged image is not copied.
pub fn from_image(reader: &Reader, options: &ImageOptions) -> Result<Tree, BuildError> {
    copied(reader, options, None)
}

/// Reads the tree of an image that may be damaged. Reads every file once to find damage. Leaves out
/// each entry that cannot be read completely, and passes its error to `leave_out`.
///
/// # Errors
/// The errors of [`from_image`], except for damage.
pub fn from_damaged_image(
    reader: &Reader,
    options: &ImageOptions,
    leave_out: &mut dyn FnMut(BuildError),
) -> Result<Tree, BuildError> {
    copied(reader, options, Some(leave_out))
}

fn copied(
    reader: &Reader,
    options: &ImageOptions,
    mut leave_out: Option<&mut dyn FnMut(BuildError)>,
) -> Result<Tree, BuildError> {
    let is_salvage = leave_out.is_some();
    let mut damaged = |error: BuildError| match (&mut leave_out, &error) {
        (
            Some(leave_out),
            BuildError::Image {
                source: Error::Corrupt(_) | Error::Io { .. } | Error::StaleNode(_),
                ..
            },
        ) => {
            leave_out(error);
            Ok(())
        }
        _ => Err(error),
    };
    let mut copy = Copy {
        reader,
        reads: is_salvage,
        xattrs: options.xattrs,
        implied: options.implied,
        has_xattrs: reader.fs().volume().has_xattrs,
        tree: Tree::default(),
        links: HashMap::new(),
        bytes: 0,
        held: Held::new(reader.limits()),
    };
    // The ancestors of the current entry, outermost first.
    let mut dirs: Vec<NodeIndex> = Vec::new();
    let mut walk = reader.walk(reader.fs().root());
    while let Some(entry) = walk.next() {
        let entry = match entry {
            Ok(entry) => entry,
            Err(failed) => {
                damaged(at(&failed.path, failed.error))?;
                continue;
            }
        };
        if !entry.path.is_empty() && options.exclude.matches(&entry.path) {
            walk.skip_children();
            continue;
        }
        let metadata = match &entry.metadata {
            Ok(metadata) => metadata,
            Err(source) => {
                damaged(at(&entry.path, source.clone()))?;
                walk.skip_children();
                continue;
            }
        };
        let is_dir = metadata.kind == FileType::Directory;
        let depth = depth(&entry.path);
        dirs.truncate(depth);
        // A name that contains slashes adds more levels than the walk has entered.
        let name = if dirs.len() == depth {
            entry.name()
        } else {
            entry.path.as_slice()
        };
        let index = match copy.add(dirs.last().copied(), &entry, name, metadata) {
            Ok(index) => index,
            Err(error) => {
                damaged(error)?;
                walk.skip_children();
                continue;
            }
        };
        if is_dir {
            dirs.push(index);
        }
    }
    copy.tree.shrink_to_fit();
    Ok(copy.tree)
}

/// Returns the number of directories above a path.
fn depth(path: &[u8]) -> usize {
    match path {
        [] => 0,
        _ => 1 + path.iter().filter(|&&byte| byte == b'/').count(),
    }
}

/// Memory of a node without its name, and of a name without its characters. Includes the
/// allocator's overhead, half-filled maps, and what a writer records about a node: the EROFS writer
/// uses 700 bytes for each directory of 500,000, tree included.
const NODE: usize = size_of::<NewNode>() + 160;
const NAME: usize = 80;

struct Copy<'r> {
    reader: &'r Reader,
    xattrs: bool,
    implied: Option<Timestamp>,
    has_xattrs: bool,
    /// Whether to read each file to find damage.
    reads: bool,
    tree: Tree,
    /// All nodes seen so far, in case of hard links. Not every format has link counts.
    links: HashMap<NodeId, NodeIndex>,
    bytes: u64,
    held: Held,
}

impl Copy<'_> {
    fn add(
        &mut self,
        dir: Option<NodeIndex>,
        entry: &WalkEntry,
        name: &[u8],
        metadata: &Metadata,
    ) -> Result<NodeIndex, BuildError> {
        let (path, node) = (entry.path.as_slice(), entry.node);
        let is_dir = metadata.kind == FileType::Directory;
        let Some(dir) = dir else {
            *self.tree.node_mut(Tree::ROOT) = self.node(path, node, metadata)?;
            return Ok(Tree::ROOT);
        };
        self.hold(path, NAME + name.len())?;
        if let Some(&first) = self.links.get(&node).filter(|_| !is_dir) {
            let linked = self.tree.link(dir, name, first);
            linked.map_err(|error| named(path, error))?;
            return Ok(first);
        }
        let new = self.node(path, node, metadata)?;
        let index = self.tree.add(dir, name, new);
        let index = index.map_err(|error| named(path, error))?;
        if !is_dir {
            self.links.insert(node, index);
        }
        Ok(index)
    }

    fn node(
        &mut self,
        path: &[u8],
        node: NodeId,
        metadata: &Metadata,
    ) -> Result<NewNode, BuildError> {
        self.hold(path, NODE)?;
        let kind = match metadata.kind {
            FileType::Directory => NewNode::directory().kind,
            FileType::Regular => {
                self.count(path, metadata.size)?;
                if self.reads {
                    let read = read_through(self.reader, node, metadata.size);
                    read.map_err(|source| at(path, source))?;
                }
                NodeKind::File {
                    len: metadata.size,
                    content: Content::Other(Arc::new(ImageFile {
                        reader: self.reader.clone(),
                        node,
                    })),
                }
            }
            FileType::Symlink => {
                let target = self.reader.fs().read_link(node);
                let target = target.map_err(|source| at(path, source))?;
                self.hold(path, target.len())?;
                NodeKind::Symlink(target)
            }
            FileType::BlockDevice => NodeKind::BlockDevice(metadata.device),
            FileType::CharDevice => NodeKind::CharDevice(metadata.device),
            FileType::Fifo => NodeKind::Fifo,
            FileType::Socket => NodeKind::Socket,
        };
        let mut new = NewNode::new(kind, metadata.mode);
        (new.uid, new.gid) = (metadata.uid, metadata.gid);
        new.mtime = metadata.mtime;
        let inferred = self.reader.fs().capabilities().inferred;
        if let (Some(time), Some(inferred)) = (self.implied, inferred)
            && inferred.is_implied(node)
        {
            new.mtime = time;
        }
        if self.has_xattrs {
            let mut bytes = 0;
            let keep = &mut |name: &[u8], value: &[u8]| {
                bytes += NAME + name.len() + value.len();
                new.xattrs.insert(name.to_vec(), value.to_vec());
            };
            let read = self.reader.fs().xattrs(node, keep);
            read.map_err(|source| at(path, source))?;
            if !self.xattrs {
                new.mode = new.mode_without_acl();
                new.xattrs.clear();
                bytes = 0;
            }
            self.hold(path, bytes)?;
        }
        Ok(new)
    }

    fn hold(&mut self, path: &[u8], bytes: usize) -> Result<(), BuildError> {
        self.held.add(bytes).map_err(|source| at(path, source))
    }

    fn count(&mut self, path: &[u8], size: u64) -> Result<(), BuildError> {
        let limit = self.reader.limits().total_bytes;
        let bytes = self.bytes.checked_add(size);
        self.bytes = bytes.filter(|&bytes| bytes <= limit).ok_or_else(|| {
            let error = Error::limit(Bound::TotalBytes, "bytes of all files", limit);
            at(path, error)
        })?;
        Ok(())
    }
}

/// Reads a file, except for its holes.
fn read_through(reader: &Reader, node: NodeId, size: u64) -> Result<(), Error> {
    const STEP: usize = 1 << 20;
    let mut at = 0;
    while at < size {
        let Some(start) = reader.seek_data(node, at)? else {
            return Ok(());
        };
        let data = reader.read(node, start, STEP)?;
        if data.is_empty() {
            return Ok(());
        }
        at = start + u64_from(data.len());
    }
    Ok(())
}

fn at(path: &[u8], source: Error) -> BuildError {
    BuildError::Image {
        path: path.to_vec(),
        source,
    }
}

/// Adds the whole path to an error of the tree, which names only the last component.
fn named(path: &[u8], error: BuildError) -> BuildError {
    let path = path.to_vec();
    match error {
        BuildError::Name { source, .. } => BuildError::Name { path, source },
        BuildError::Conflict { reason, .. } => BuildError::Conflict { path, reason },
        other => other,
    }
}

struct ImageFile {
    reader: Reader,
    node: NodeId,
}

impl std::fmt::Debug for ImageFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ImageFile({})", self.node)
    }
}

impl ContentSource for ImageFile {
    fn open(&self, len: u64) -> io::Result<Box<dyn ContentStream>> {
        let sum = self.reader.fs().file_sum(self.node);
        Ok(Box::new(ImageReader {
            sum: sum.map_err(io::Error::other)?,
            reader: self.reader.clone(),
            node: self.node,
            at: 0,
            len,
            zeros: 0,
        }))
    }

    fn extents(&self, len: u64) -> io::Result<Vec<Extent>> {
        let mut extents = Vec::new();
        let mapped = self.reader.fs().map(self.node, 0..len, &mut |extent| {
            extents.push(extent);
            ControlFlow::Continue(())
        });
        mapped.map_err(io::Error::other)?;
        Ok(extents)
    }
}

/// Streams a file of an image from its start.
struct ImageReader {
    sum: Option<Box<dyn FileSum>>,
    reader: Reader,
    node: NodeId,
    at: u64,
    len: u64,
    /// All bytes up to this offset are known to be zeros.
    zeros: u64,
}

impl ImageReader {
    /// Adds bytes to the checksum, and compares it at the end of the file.
    fn passed(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(sum) = &mut self.sum else {
            return Ok(());
        };
        sum.take(bytes);
        if self.at < self.len {
            Ok(())
        } else {
            sum.finish().map_err(io::Error::other)
        }
    }

    /// Finds the end of a hole, so that the rest of the hole needs no reads.
    fn look_ahead(&mut self) -> io::Result<()> {
        let data = self.reader.seek_data(self.node, self.at);
        self.zeros = data.map_err(io::Error::other)?.unwrap_or(self.len);
        Ok(())
    }
}

impl ContentStream for ImageReader {
    fn hole(&mut self) -> io::Result<u64> {
        Ok(self.zeros.min(self.len).saturating_sub(self.at))
    }

    fn skip(&mut self, len: u64) {
        self.at += len;
        // The checksum covers only files without holes.
        self.sum = None;
    }

    fn next_data(&mut self) -> io::Result<Option<Range<u64>>> {
        let failed = io::Error::other;
        let start = self.reader.seek_data(self.node, self.at);
        let Some(start) = start.map_err(failed)? else {
            return Ok(Some(self.len..self.len));
        };
        let end = self.reader.seek_hole(self.node, start).map_err(failed)?;
        Ok(Some(start..end.unwrap_or(self.len)))
    }

    fn skip_to(&mut self, at: u64) {
        self.at = at;
    }
}

impl Read for ImageReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let want = out.len().min(usize_from(self.len - self.at));
        let out = &mut out[..want];
        if self.at < self.zeros {
            let known = out.len().min(usize_from(self.zeros - self.at));
            let out = &mut out[..known];
            out.fill(0);
            self.at += u64_from(out.len());
            self.passed(out)?;
            return Ok(out.len());
        }
        let got = self.reader.read_into(self.node, self.at, out);
        let got = got.map_err(io::Error::other)?;
        self.at += u64_from(got);
        // Zeros may be the start of a large hole.
        let last = &out[..got];
        self.passed(last)?;
        if got > 0 && self.at < self.len && last.iter().all(|&byte| byte == 0) {
            self.look_ahead()?;
        }
        Ok(got)
    }
}
