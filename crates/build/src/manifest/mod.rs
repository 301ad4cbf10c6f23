//! Creates or changes a tree from a manifest: a text file with one line per entry.
//!
//! The lines are the pseudo-file definitions of `mksquashfs`, with one addition, for contents from
//! a host file, and one omission: commands are not run, but `true` creates an empty file.
//! `docs/manifest.md` describes the lines. The data that `unsquashfs` appends to the definitions is
//! read in place.

mod names;
mod parse;
mod pseudo;
mod xattr_value;

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forerun_io::{Limits, u64_from};

use super::line::{Components, LineError, is_blank};
use super::{BuildError, Content, HostFile, NewNode, NodeIndex, NodeKind, Tree};
use parse::{Action, Attributes, Line, Make, parse};
use pseudo::Pseudo;

pub use names::{group_id, user_id};
pub use parse::parse_xattr;
pub use pseudo::{PseudoDefinitions, PseudoRules};

/// Longest definition. Paths, targets and attributes are far shorter.
const LINE_MAX: usize = 1 << 20;
/// The start of the comment that ends the definitions.
const DATA_MARK: &[u8] = b"# START OF DATA";

/// Reads a manifest and applies it to `tree`. Uses only the limits of entries and depth. An entry
/// without a time gets the epoch, so that the same manifest gives the same image.
///
/// # Errors
/// [`BuildError::Line`] with the line that cannot be applied; the tree is then partly changed.
pub fn apply_manifest(tree: &mut Tree, path: &Path, limits: &Limits) -> Result<(), BuildError> {
    let mut manifest = Manifest::new(tree, limits, path.parent().unwrap_or(Path::new("")));
    manifest.apply_file(path)
}

struct Manifest<'m> {
    tree: &'m mut Tree,
    limits: &'m Limits,
    /// The directory to which host paths are relative.
    dir: &'m Path,
    /// Number of the current line.
    line: u64,
    /// Links to paths that did not exist yet: the line, the path, the target.
    links: Vec<(u64, Components, Components)>,
    /// Files whose contents follow the definitions: the line, the node, offset and length.
    data: Vec<(u64, NodeIndex, u64, u64)>,
    /// Present if the lines follow the rules of `mksquashfs`.
    pseudo: Option<Pseudo<'m>>,
}

impl<'m> Manifest<'m> {
    const fn new(tree: &'m mut Tree, limits: &'m Limits, dir: &'m Path) -> Self {
        Self {
            tree,
            limits,
            dir,
            line: 0,
            links: Vec::new(),
            data: Vec::new(),
            pseudo: None,
        }
    }

    fn apply_file(&mut self, path: &Path) -> Result<(), BuildError> {
        let failed = |source| BuildError::Host {
            path: path.to_path_buf(),
            source,
        };
        let file = File::open(path).map_err(failed)?;
        // Relative to the current position, because standard input may have been read before.
        let start = file.try_clone().and_then(|mut file| file.stream_position());
        let kept = file.try_clone().map_err(failed)?;
        self.line = 0;
        let end = self.read(path, &mut BufReader::new(file))?;
        self.finish_links(path)?;
        let is_file = kept.metadata().map_err(failed)?.is_file();
        let data = match (start, end) {
            (Ok(start), Some(end)) if is_file => Some((Arc::new(kept), start + end)),
            _ => None,
        };
        self.finish_data(path, data)
    }
    /// Applies every line. Returns the position of the data, if there is any.
    fn read(&mut self, path: &Path, input: &mut dyn BufRead) -> Result<Option<u64>, BuildError> {
        let mut position = 0;
        while let Some(line) = self.next_line(path, input, &mut position)? {
            if line.starts_with(DATA_MARK) {
                // Another comment line ends the notice.
                self.next_line(path, input, &mut position)?;
                return Ok(Some(position));
            }
            if is_blank(&line) {
                continue;
            }
            self.one_line(&line)
                .map_err(|step| step.at(path, self.line))?;
        }
        Ok(None)
    }

    fn next_line(
        &mut self,
        path: &Path,
        input: &mut dyn BufRead,
        position: &mut u64,
    ) -> Result<Option<Vec<u8>>, BuildError> {
        let mut line = Vec::new();
        let read = input
            .take(u64_from(LINE_MAX) + 1)
            .read_until(b'\n', &mut line);
        let got = read.map_err(|source| BuildError::Host {
            path: path.to_path_buf(),
            source,
        })?;
        self.line += 1;
        *position += u64_from(got);
        if got > LINE_MAX {
            return Err(Step::from(LineError::TooLong(LINE_MAX)).at(path, self.line));
        }
        if line.ends_with(b"\n") {
            line.pop();
        }
        if line.ends_with(b"\r") {
            line.pop();
        }
        Ok((got > 0).then_some(line))
    }

    fn one_line(&mut self, line: &[u8]) -> Result<(), Step> {
        let line = parse(line, self.pseudo.is_some())?;
        if self.is_ignored(&line) {
            Ok(())
        } else {
            self.apply(line)
        }
    }

    fn apply(&mut self, line: Line) -> Result<(), Step> {
        if line.path.len() > self.limits.depth {
            return Err(LineError::Depth(display(&line.path)).into());
        }
        match line.action {
            Action::Make(attributes, make) => self.make(&line.path, &attributes, make)?,
            Action::Modify(attributes) => {
                let index = self.existing(&line.path)?;
                set(self.tree.node_mut(index), &attributes);
            }
            Action::Xattr { name, value } => {
                let index = self.existing(&line.path)?;
                self.tree.node_mut(index).xattrs.insert(name, value);
            }
            Action::Like { file, follows } => self.like(&line.path, file, follows)?,
            Action::HardLink(target) => match self.find(&target) {
                Some(found) => self.link(&line.path, found)?,
                None => self.links.push((self.line, line.path, target)),
            },
        }
        if u64_from(self.tree.len()) > self.limits.tree_entries {
            return Err(LineError::Entries.into());
        }
        Ok(())
    }

    fn make(&mut self, path: &[Vec<u8>], attributes: &Attributes, make: Make) -> Result<(), Step> {
        let is_dir = |kind: &NodeKind| matches!(kind, NodeKind::Directory(_));
        if let Some(there) = self.find(path) {
            return match make {
                Make::Directory if is_dir(&self.tree.node(there).kind) => {
                    set(self.tree.node_mut(there), attributes);
                    if let Some(pseudo) = &mut self.pseudo {
                        pseudo.made.insert(there);
                    }
                    Ok(())
                }
                _ => Err(LineError::Exists(display(path)).into()),
            };
        }
        let mut data = None;
        let kind = match make {
            Make::Directory => NewNode::directory().kind,
            Make::Block(device) => NodeKind::BlockDevice(device),
            Make::Char(device) => NodeKind::CharDevice(device),
            Make::Symlink(target) => NodeKind::Symlink(target),
            Make::Fifo => NodeKind::Fifo,
            Make::Socket => NodeKind::Socket,
            Make::Empty => empty_file(),
            Make::Host(file) => host_file(self.dir.join(file))?,
            Make::Data { len, offset } => {
                data = Some((offset, len));
                empty_file()
            }
        };
        let mut node = self.dated(NewNode::new(kind, attributes.mode));
        set(&mut node, attributes);
        let index = self.add(path, node)?;
        if let Some((offset, len)) = data {
            self.data.push((self.line, index, offset, len));
        }
        Ok(())
    }

    fn add(&mut self, path: &[Vec<u8>], node: NewNode) -> Result<NodeIndex, Step> {
        let (dir, name) = self.place(path)?;
        let index = self.tree.add(dir, name, node)?;
        if let Some(pseudo) = &mut self.pseudo {
            pseudo.made.insert(index);
        }
        Ok(index)
    }

    /// Sets the default modification time on a node whose line gives none. In a pseudo file, this
    /// is the current time.
    fn dated(&self, mut node: NewNode) -> NewNode {
        if let Some(pseudo) = &self.pseudo {
            node.mtime = pseudo.now;
        }
        node
    }

    /// Creates a directory that no line lists.
    fn missing_dir(&self) -> NewNode {
        let mut node = self.dated(NewNode::directory());
        let given = self.pseudo.as_ref().and_then(|pseudo| pseudo.dir.as_ref());
        if let Some(attributes) = given {
            set(&mut node, attributes);
        }
        node
    }

    fn link(&mut self, path: &[Vec<u8>], target: NodeIndex) -> Result<(), Step> {
        if matches!(self.tree.node(target).kind, NodeKind::Directory(_)) {
            return Err(LineError::IsADirectory.into());
        }
        if self.find(path).is_some() {
            return Err(LineError::Exists(display(path)).into());
        }
        let (dir, name) = self.place(path)?;
        Ok(self.tree.link(dir, name, target)?)
    }

    fn finish_links(&mut self, manifest: &Path) -> Result<(), BuildError> {
        for (line, path, target) in std::mem::take(&mut self.links) {
            let found = self.find(&target).ok_or_else(|| not_found(&target));
            let linked = found.and_then(|found| self.link(&path, found));
            linked.map_err(|step| step.at(manifest, line))?;
        }
        Ok(())
    }

    /// Sets the contents of the files when the start of the data is known.
    fn finish_data(
        &mut self,
        manifest: &Path,
        data: Option<(Arc<File>, u64)>,
    ) -> Result<(), BuildError> {
        for (line, index, offset, len) in std::mem::take(&mut self.data) {
            let Some((file, start)) = &data else {
                return Err(Step::from(LineError::NoData).at(manifest, line));
            };
            let file_len = file.metadata().map_or(0, |metadata| metadata.len());
            let begin = start.checked_add(offset);
            let end = begin.and_then(|begin| begin.checked_add(len));
            let (Some(begin), Some(_)) = (begin, end.filter(|end| *end <= file_len)) else {
                return Err(Step::from(LineError::PastData { offset, len }).at(manifest, line));
            };
            let content = Content::Part {
                file: Arc::clone(file),
                offset: begin,
            };
            self.tree.node_mut(index).kind = NodeKind::File { len, content };
        }
        Ok(())
    }

    /// Returns the parent directory of a new entry, created if missing, and the entry's name.
    fn place<'p>(&mut self, path: &'p [Vec<u8>]) -> Result<(NodeIndex, &'p [u8]), Step> {
        let Some((name, parents)) = path.split_last() else {
            return Err(LineError::Exists(display(path)).into());
        };
        let mut dir = Tree::ROOT;
        for (depth, name) in parents.iter().enumerate() {
            dir = match self.tree.child(dir, name) {
                Some(there) => there,
                None => {
                    let node = self.missing_dir();
                    self.tree.add(dir, name, node)?
                }
            };
            if !matches!(self.tree.node(dir).kind, NodeKind::Directory(_)) {
                let path = parents.get(..=depth).unwrap_or(parents);
                return Err(LineError::NotADirectory(display(path)).into());
            }
        }
        Ok((dir, name))
    }

    fn find(&self, path: &[Vec<u8>]) -> Option<NodeIndex> {
        path.iter()
            .try_fold(Tree::ROOT, |dir, name| self.tree.child(dir, name))
    }

    fn existing(&self, path: &[Vec<u8>]) -> Result<NodeIndex, Step> {
        self.find(path).ok_or_else(|| not_found(path))
    }
}

/// The reason why a line could not be applied.
enum Step {
    Line(LineError),
    Other(BuildError),
}

impl Step {
    fn at(self, file: &Path, line: u64) -> BuildError {
        match self {
            Self::Line(source) => BuildError::Line {
                file: file.to_path_buf(),
                line,
                source,
            },
            Self::Other(error) => error,
        }
    }
}

impl From<LineError> for Step {
    fn from(error: LineError) -> Self {
        Self::Line(error)
    }
}

impl From<BuildError> for Step {
    fn from(error: BuildError) -> Self {
        Self::Other(error)
    }
}

fn set(node: &mut NewNode, attributes: &Attributes) {
    node.mode = attributes.mode;
    (node.uid, node.gid) = (attributes.uid, attributes.gid);
    if let Some(time) = attributes.time {
        node.mtime = time;
    }
}

fn empty_file() -> NodeKind {
    let content = Content::Bytes([].into());
    NodeKind::File { len: 0, content }
}

/// Returns the contents of a host file. Follows symbolic links to it.
fn host_file(path: PathBuf) -> Result<NodeKind, LineError> {
    let found = fs::canonicalize(&path).and_then(|path| Ok((fs::metadata(&path)?, path)));
    match found {
        Ok((metadata, path)) if metadata.is_file() => Ok(NodeKind::File {
            len: metadata.len(),
            content: Content::Host(HostFile::named(path, &metadata)),
        }),
        Ok(_) => Err(LineError::Host {
            path,
            source: io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"),
        }),
        Err(source) => Err(LineError::Host { path, source }),
    }
}

fn not_found(path: &[Vec<u8>]) -> Step {
    LineError::NotFound(display(path)).into()
}

fn display(path: &[Vec<u8>]) -> String {
    format!("/{}", super::line::lossy(&path.join(&b'/')))
}
