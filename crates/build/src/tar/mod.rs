//! Builds a tree from a tar stream.
//!
//! The tree is the result of an extraction: later entries replace earlier ones, and directories
//! that no entry names are created. The contents of a seekable archive stay in it; the contents of
//! a stream go to a spool file without a name, which vanishes with the tree.

mod entry;
mod pax;
mod sparse;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use forerun_io::{Limits, u64_from};
use forerun_vfs::{Bound, Error, Timestamp};
use tar::Archive;

use super::{
    BuildError, Content, NewNode, NodeIndex, NodeKind, Patterns, SparseParts, Tree, spool_file,
};
use entry::{Body, Parsed};
use pax::{Tape, Taped};
use sparse::SparseBody;

/// Which entries of an archive are taken.
#[derive(Clone, Debug, Default)]
pub struct TarOptions {
    /// Paths that are left out, with everything below them.
    pub exclude: Patterns,
    /// Later modification times are set to this, in seconds since the epoch.
    pub latest: Option<i64>,
    /// The time of directories that no entry names; the epoch without it.
    pub unnamed: Option<Timestamp>,
    /// Bounds on entries, depth and bytes.
    pub limits: Limits,
}

pub enum TarInput {
    /// A regular file, read from its current position on.
    File(File),
    Stream(Box<dyn Read>),
}

impl std::fmt::Debug for TarInput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::File(_) => "File",
            Self::Stream(_) => "Stream",
        })
    }
}

/// Reads an archive to its end.
///
/// # Errors
/// [`BuildError::Tar`] with the entry that is damaged or cannot be kept, [`BuildError::Name`] for
/// paths with `..`, [`BuildError::Conflict`] for hard links to nothing.
pub fn read_tar(input: TarInput, options: &TarOptions) -> Result<Tree, BuildError> {
    let mut build = TarBuild {
        options,
        tree: Tree::default(),
        spool: None,
        in_place: None,
        bytes: 0,
        entries: 0,
    };
    match input {
        TarInput::File(file) => {
            let failed = |source| BuildError::Tar {
                entry: "archive".into(),
                source,
            };
            let mut position = file.try_clone().map_err(failed)?;
            let start = position.stream_position().map_err(failed)?;
            build.in_place = Some((Arc::new(file.try_clone().map_err(failed)?), start));
            build.read(Box::new(io::BufReader::with_capacity(1 << 16, file)))?;
        }
        TarInput::Stream(stream) => build.read(stream)?,
    }
    build.tree.shrink_to_fit();
    Ok(build.tree)
}

struct TarBuild<'o> {
    options: &'o TarOptions,
    tree: Tree,
    /// The spool file of contents that cannot stay in the archive, and its length so far.
    spool: Option<(Arc<File>, u64)>,
    /// The archive itself, and its start.
    in_place: Option<(Arc<File>, u64)>,
    bytes: u64,
    entries: u64,
}

impl TarBuild<'_> {
    fn read(&mut self, input: Box<dyn Read>) -> Result<(), BuildError> {
        let tape = Tape::default();
        let mut archive = Archive::new(Taped {
            inner: refuse_compressed(input)?,
            tape: tape.clone(),
        });
        let broken = |n: u64, source| BuildError::Tar {
            entry: format!("number {n}"),
            source,
        };
        let mut entries = archive.entries().map_err(|error| broken(0, error))?;
        let mut headers_at = 0;
        loop {
            tape.start(headers_at);
            let Some(entry) = entries.next() else { break };
            self.entries += 1;
            let mut entry = entry.map_err(|error| broken(self.entries, error))?;
            let headers = tape.stop().map_err(|error| broken(self.entries, error))?;
            let parsed = entry::parse(&mut entry, headers)?;
            let (start, len) = parsed.stored;
            let end = len.checked_next_multiple_of(512);
            let end = end.and_then(|len| start.checked_add(len));
            headers_at = end.ok_or_else(|| parsed.failed("longer than any archive"))?;
            if self.entries > self.options.limits.tree_entries {
                return Err(parsed.failed("more entries than the limit allows"));
            }
            if !self.options.exclude.covers(&parsed.path.join(&b'/')) {
                self.add(&parsed, &mut entry, &tape)?;
            }
        }
        Ok(())
    }

    fn add<R: Read>(
        &mut self,
        parsed: &Parsed,
        entry: &mut tar::Entry<'_, R>,
        tape: &Tape,
    ) -> Result<(), BuildError> {
        if parsed.path.len() > self.options.limits.depth {
            return Err(parsed.failed("deeper than the limit allows"));
        }
        let content_kind = match &parsed.body {
            Body::Skip => return Ok(()),
            Body::HardLink(target) => return self.link(parsed, target),
            Body::Node(kind) => kind.clone(),
            Body::Data { len, sparse } => {
                self.count(parsed, *len, tape)?;
                let content = match sparse {
                    Some(body) => self.sparse(parsed, body, tape),
                    None => self.plain(entry, parsed.stored.0, *len),
                };
                let content = content.map_err(|error| parsed.broken(error))?;
                NodeKind::File { len: *len, content }
            }
        };
        let mut node = NewNode {
            kind: content_kind,
            ..parsed.node.clone()
        };
        if let Some(latest) = self
            .options
            .latest
            .filter(|&latest| node.mtime.seconds >= latest)
        {
            (node.mtime.seconds, node.mtime.nanoseconds) = (latest, 0);
        }
        self.place(parsed, node)
    }

    /// Adds a node at its path. A directory that exists already keeps its entries.
    fn place(&mut self, parsed: &Parsed, mut node: NewNode) -> Result<(), BuildError> {
        let Some((name, parents)) = parsed.path.split_last() else {
            return self.replace_metadata(parsed, Tree::ROOT, node);
        };
        let dir = self.directory(parsed, parents)?;
        if let Some(old) = self.tree.child(dir, name) {
            let is_dir = |node: &NewNode| matches!(node.kind, NodeKind::Directory(_));
            if is_dir(&node) && is_dir(self.tree.node(old)) {
                return self.replace_metadata(parsed, old, node);
            }
            if is_dir(self.tree.node(old)) && self.tree.children(old).next().is_some() {
                return Err(parsed.failed("it would replace a directory that is not empty"));
            }
            self.tree.unlink(dir, name);
        }
        if let NodeKind::Directory(entries) = &mut node.kind {
            *entries = BTreeMap::new();
        }
        self.tree
            .add(dir, name, node)
            .map_err(|error| parsed.named(error))?;
        Ok(())
    }

    fn replace_metadata(
        &mut self,
        parsed: &Parsed,
        at: NodeIndex,
        node: NewNode,
    ) -> Result<(), BuildError> {
        if !matches!(node.kind, NodeKind::Directory(_)) {
            return Err(parsed.failed("the root can only be a directory"));
        }
        let old = self.tree.node_mut(at);
        let kind = std::mem::replace(&mut old.kind, NodeKind::Fifo);
        *old = NewNode { kind, ..node };
        Ok(())
    }

    fn link(&mut self, parsed: &Parsed, target: &[Vec<u8>]) -> Result<(), BuildError> {
        let mut found = Some(Tree::ROOT);
        for name in target {
            found = found.and_then(|dir| self.tree.child(dir, name));
        }
        let Some((name, parents)) = parsed.path.split_last() else {
            return Err(parsed.failed("the root can only be a directory"));
        };
        let Some(found) = found else {
            let target = String::from_utf8_lossy(&target.join(&b'/')).into_owned();
            return Err(parsed.failed_with(format!(
                "hard link to {target:?}, which is not in the archive before it"
            )));
        };
        let dir = self.directory(parsed, parents)?;
        if self.tree.child(dir, name) == Some(found) {
            return Ok(());
        }
        self.tree.unlink(dir, name);
        self.tree
            .link(dir, name, found)
            .map_err(|error| parsed.named(error))
    }

    /// Returns the directory at a path, created if missing.
    fn directory(&mut self, parsed: &Parsed, path: &[Vec<u8>]) -> Result<NodeIndex, BuildError> {
        let mut dir = Tree::ROOT;
        for name in path {
            dir = match self.tree.child(dir, name) {
                Some(there) if matches!(self.tree.node(there).kind, NodeKind::Directory(_)) => {
                    there
                }
                Some(_) => return Err(parsed.failed("a part of its path is not a directory")),
                None => {
                    let mut node = NewNode::directory();
                    node.mtime = self.options.unnamed.unwrap_or(node.mtime);
                    let made = self.tree.add(dir, name, node);
                    made.map_err(|error| parsed.named(error))?
                }
            };
        }
        Ok(dir)
    }

    /// Counts the bytes of a file. Those that the archive holds are bounded by its own length.
    fn count(&mut self, parsed: &Parsed, len: u64, tape: &Tape) -> Result<(), BuildError> {
        let limit = self.options.limits.total_bytes_of(tape.position());
        let over = || BuildError::Image {
            path: parsed.path.join(&b'/'),
            source: Error::limit(Bound::TotalBytes, "bytes of all files", limit),
        };
        self.bytes = self.bytes.checked_add(len).ok_or_else(over)?;
        let beyond = self.bytes.saturating_sub(tape.position());
        if self.bytes > limit && beyond > parsed.stored.1 {
            Err(over())
        } else {
            Ok(())
        }
    }

    fn plain<R: Read>(
        &mut self,
        entry: &mut tar::Entry<'_, R>,
        start: u64,
        len: u64,
    ) -> io::Result<Content> {
        if let Some((file, archive)) = &self.in_place {
            return Ok(Content::Part {
                file: Arc::clone(file),
                offset: archive + start,
            });
        }
        let (file, offset) = self.room(len)?;
        if copy_at(entry, &file, offset, len)? < len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let file_len = file.metadata()?.len().max(offset + len);
        file.set_len(file_len)?;
        Ok(Content::Part { file, offset })
    }

    /// Takes the parts of a sparse file; of a stream they are copied when the reader passes them.
    fn sparse(&mut self, parsed: &Parsed, body: &SparseBody, tape: &Tape) -> io::Result<Content> {
        let start = parsed.stored.0 + body.start;
        let held = body.parts.iter().map(|(_, len)| len).sum();
        let (file, offset) = match &self.in_place {
            Some((file, archive)) => (Arc::clone(file), archive + start),
            None => {
                let (file, offset) = self.room(held)?;
                tape.copy(start..start + held, Arc::clone(&file), offset);
                (file, offset)
            }
        };
        Ok(Content::Sparse(Arc::new(SparseParts {
            file,
            offset,
            parts: body.parts.clone(),
        })))
    }

    /// Returns a place for bytes in the spool file.
    fn room(&mut self, len: u64) -> io::Result<(Arc<File>, u64)> {
        let (file, offset) = match &self.spool {
            Some((file, end)) => (Arc::clone(file), *end),
            None => (Arc::new(spool_file()?), 0),
        };
        let end = offset.checked_add(len).ok_or(io::ErrorKind::FileTooLarge)?;
        self.spool = Some((Arc::clone(&file), end));
        Ok((file, offset))
    }
}

/// Copies up to `len` bytes into a file, except runs of zeros.
fn copy_at(from: &mut dyn Read, to: &File, offset: u64, len: u64) -> io::Result<u64> {
    let mut chunk = vec![0; 1 << 18];
    let (mut done, mut from) = (0, from.take(len));
    loop {
        let got = from.read(&mut chunk)?;
        let bytes = &chunk[..got];
        if got == 0 {
            return Ok(done);
        }
        if bytes.iter().any(|&byte| byte != 0) {
            to.write_all_at(bytes, offset + done)?;
        }
        done += u64_from(got);
    }
}

/// Refuses a compressed stream by its first bytes. Otherwise returns the stream with these bytes.
fn refuse_compressed(mut input: Box<dyn Read>) -> Result<Box<dyn Read>, BuildError> {
    let failed = |source| BuildError::Tar {
        entry: "archive".into(),
        source,
    };
    let mut head = Vec::new();
    input
        .by_ref()
        .take(6)
        .read_to_end(&mut head)
        .map_err(failed)?;
    let magics: [(&[u8], &str); 4] = [
        (b"\x1f\x8b", "gzip"),
        (b"\xfd7zXZ\0", "xz"),
        (b"\x28\xb5\x2f\xfd", "zstd"),
        (b"BZh", "bzip2"),
    ];
    if let Some((_, name)) = magics.iter().find(|(magic, _)| head.starts_with(magic)) {
        let hint = format!(
            "it is compressed with {name}; decompress it first, as in `{name} -dc FILE | forerun pack -`"
        );
        return Err(failed(io::Error::new(io::ErrorKind::InvalidData, hint)));
    }
    Ok(Box::new(io::Cursor::new(head).chain(input)))
}
