//! Reads trees in the format of composefs-dump(5), like `mkcomposefs --from-file`: one line per
//! node, parents before children.

use std::io::{self, BufRead, Read};
use std::sync::Arc;

use forerun_build::{BuildError, Content, NewNode, NodeIndex, NodeKind, Tree};
use forerun_io::u64_from;
use forerun_vfs::{Device, Timestamp};

use super::data::{FileData, Files};
use crate::digest::Digest;
use crate::dump::CONTENT_MAX;
use crate::ondisk::kind;

/// Longest line. The kernel limits each field: paths and targets to 4 KiB, all attributes of a node
/// to 64 KiB. An escaped byte takes four.
const LINE_MAX: usize = 1 << 19;

/// Longest path that the kernel supports.
const PATH_MAX: usize = 4095;

/// The fields of a line before the attributes.
const FIELDS: [&str; 11] = [
    "path", "size", "mode", "nlink", "uid", "gid", "rdev", "mtime", "payload", "content", "digest",
];

/// The reason why a dump is invalid.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// The text could not be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("line {line}: {source}")]
    Line {
        /// Number of the line, from 1.
        line: u64,
        source: DumpLineError,
    },
    #[error("the dump has no line for the root")]
    NoRoot,
}

/// The error in a line of a dump.
#[derive(Debug, thiserror::Error)]
pub enum DumpLineError {
    #[error("longer than {LINE_MAX} bytes")]
    TooLong,
    #[error("the field {0} is missing")]
    Missing(&'static str),
    #[error("{0} {1:?} is not a number, or is too large")]
    Number(&'static str, String),
    /// A backslash without `\`, `n`, `r`, `t` or `x` and two digits after it.
    #[error("{0} has an unknown escape")]
    Escape(&'static str),
    #[error("{0} contains a NUL byte")]
    Nul(&'static str),
    #[error("the path is longer than {PATH_MAX} bytes")]
    PathTooLong,
    #[error("the first line must describe the root, and no other line may")]
    Root,
    #[error("mode {0:o} has no known file type")]
    Mode(u16),
    #[error("the directory {0:?} has no line before this one")]
    NoParent(String),
    #[error("{0:?}, to which a hard link points, does not exist")]
    NoTarget(String),
    #[error("the symbolic link has no target")]
    NoLinkTarget,
    #[error(
        "the content has {len} bytes, but the size is {size}; at most {CONTENT_MAX} are allowed"
    )]
    Content { len: u64, size: u64 },
    #[error("the digest is not 64 or 128 hexadecimal digits")]
    Digest,
    #[error("an attribute is not NAME=VALUE")]
    Xattr,
    /// The tree does not accept the node.
    #[error(transparent)]
    Tree(#[from] BuildError),
}

use DumpLineError as Wrong;

/// Reads a dump. Returns the tree, and the locations of its files' contents. The error names the
/// first invalid line.
pub fn read_dump(mut input: impl BufRead) -> Result<(Tree, Files), DumpError> {
    let mut dump = Dump::default();
    let mut text = Vec::new();
    let mut line = 0;
    loop {
        text.clear();
        let mut bounded = input.by_ref().take(u64_from(LINE_MAX) + 1);
        if bounded.read_until(b'\n', &mut text)? == 0 {
            break;
        }
        line += 1;
        let wrong = |source| DumpError::Line { line, source };
        if text.last() == Some(&b'\n') {
            text.pop();
        }
        if text.len() > LINE_MAX {
            return Err(wrong(Wrong::TooLong));
        }
        dump.line(line, &text).map_err(wrong)?;
    }
    if line == 0 {
        return Err(DumpError::NoRoot);
    }
    // Hard links may point to later lines.
    for link in std::mem::take(&mut dump.links) {
        let line = link.line;
        let wrong = |source| DumpError::Line { line, source };
        dump.link(&link).map_err(wrong)?;
    }
    Ok((dump.tree, dump.files))
}

#[derive(Default)]
struct Dump {
    tree: Tree,
    files: Files,
    links: Vec<HardLink>,
}

struct HardLink {
    line: u64,
    path: Vec<u8>,
    target: Vec<u8>,
}

impl Dump {
    fn line(&mut self, line: u64, text: &[u8]) -> Result<(), Wrong> {
        let fields = Fields::split(text)?;
        let path = fields.text(0)?;
        if path.len() > PATH_MAX {
            return Err(Wrong::PathTooLong);
        }
        let is_root = path == b"/";
        if is_root != (line == 1) {
            return Err(Wrong::Root);
        }
        if fields.bytes(2).starts_with(b"@") {
            if is_root {
                return Err(Wrong::Root);
            }
            let target = fields.text(8)?;
            self.links.push(HardLink { line, path, target });
            return Ok(());
        }
        let (node, data) = fields.node()?;
        let is_directory = matches!(node.kind, NodeKind::Directory(_));
        let index = if is_root {
            if !is_directory {
                return Err(Wrong::Root);
            }
            *self.tree.node_mut(Tree::ROOT) = node;
            Tree::ROOT
        } else {
            let (dir, name) = self.parent(&path)?;
            self.tree.add(dir, name, node)?
        };
        if let Some(data) = data {
            self.files.insert(index, data);
        }
        if !is_directory {
            self.files.set_nlink(index, fields.number(3)?);
        }
        Ok(())
    }

    fn link(&mut self, link: &HardLink) -> Result<(), Wrong> {
        let target = self.find(&link.target).filter(|node| *node != Tree::ROOT);
        let target = target.ok_or_else(|| Wrong::NoTarget(lossy(&link.target)))?;
        // A link to a link must come after the link to the node.
        let (dir, name) = self.parent(&link.target)?;
        self.files.set_home(target, dir, name);
        let (dir, name) = self.parent(&link.path)?;
        Ok(self.tree.link(dir, name, target)?)
    }

    /// Splits a path into its parent directory and its last name.
    fn parent<'p>(&self, path: &'p [u8]) -> Result<(NodeIndex, &'p [u8]), Wrong> {
        let slash = path.iter().rposition(|&byte| byte == b'/');
        let (dir, name) = slash.map_or((&b""[..], path), |at| (&path[..at], &path[at + 1..]));
        let found = self.find(dir).ok_or_else(|| Wrong::NoParent(lossy(dir)))?;
        Ok((found, name))
    }

    fn find(&self, path: &[u8]) -> Option<NodeIndex> {
        path.split(|&byte| byte == b'/')
            .filter(|name| !name.is_empty())
            .try_fold(Tree::ROOT, |dir, name| self.tree.child(dir, name))
    }
}

/// A line, split into fields.
struct Fields<'l> {
    fixed: [&'l [u8]; FIELDS.len()],
    xattrs: &'l [u8],
}

impl<'l> Fields<'l> {
    fn split(line: &'l [u8]) -> Result<Self, Wrong> {
        let mut words = line.splitn(FIELDS.len() + 1, |&byte| byte == b' ');
        let mut fixed = [&b""[..]; FIELDS.len()];
        for (field, name) in fixed.iter_mut().zip(FIELDS) {
            *field = words.next().ok_or(Wrong::Missing(name))?;
        }
        let xattrs = words.next().unwrap_or_default();
        Ok(Self { fixed, xattrs })
    }

    fn bytes(&self, field: usize) -> &'l [u8] {
        self.fixed[field]
    }

    /// Returns a string for the kernel, which ends at a NUL byte.
    fn text(&self, field: usize) -> Result<Vec<u8>, Wrong> {
        text(FIELDS[field], self.bytes(field))
    }

    /// Returns a field, or `None` if it is `-`.
    fn optional(&self, field: usize) -> Result<Option<Vec<u8>>, Wrong> {
        let bytes = self.bytes(field);
        if bytes == b"-" {
            return Ok(None);
        }
        unescape(FIELDS[field], bytes).map(Some)
    }

    fn number<T: std::str::FromStr>(&self, field: usize) -> Result<T, Wrong> {
        number(FIELDS[field], self.bytes(field))
    }

    fn node(&self) -> Result<(NewNode, Option<FileData>), Wrong> {
        let bad_mode = || Wrong::Number(FIELDS[2], lossy(self.bytes(2)));
        let mode = std::str::from_utf8(self.bytes(2)).map_err(|_| bad_mode())?;
        let mode = u16::from_str_radix(mode, 8).map_err(|_| bad_mode())?;
        let mut data = None;
        let kind = match mode & kind::MASK {
            kind::DIRECTORY => NodeKind::Directory(std::collections::BTreeMap::new()),
            kind::SYMLINK => match self.bytes(8) {
                b"" | b"-" => return Err(Wrong::NoLinkTarget),
                _ => NodeKind::Symlink(self.text(8)?),
            },
            kind::BLOCK => NodeKind::BlockDevice(Device::unpack(self.number(6)?)),
            kind::CHAR => NodeKind::CharDevice(Device::unpack(self.number(6)?)),
            kind::FIFO => NodeKind::Fifo,
            kind::SOCKET => NodeKind::Socket,
            kind::REGULAR => {
                let len = self.number(1)?;
                data = self.data(len)?;
                let content = Content::Bytes(Arc::default());
                NodeKind::File { len, content }
            }
            _ => return Err(Wrong::Mode(mode)),
        };
        let mut node = NewNode::new(kind, mode & !kind::MASK);
        node.uid = self.number(4)?;
        node.gid = self.number(5)?;
        node.mtime = self.mtime()?;
        let mut attributes = self.xattrs.split(|&byte| byte == b' ').peekable();
        while let Some(attribute) = attributes.next() {
            if attribute.is_empty() && attributes.peek().is_none() {
                break;
            }
            let equals = attribute.iter().position(|&byte| byte == b'=');
            let equals = equals.filter(|at| *at > 0).ok_or(Wrong::Xattr)?;
            let name = text("the name of an attribute", &attribute[..equals])?;
            let value = unescape("an attribute", &attribute[equals + 1..])?;
            node.xattrs.insert(name, value);
        }
        Ok((node, data))
    }

    /// Returns the location of a file's bytes.
    fn data(&self, size: u64) -> Result<Option<FileData>, Wrong> {
        let content = self.optional(9)?;
        if let Some(content) = content {
            let len = u64_from(content.len());
            if len != size || len > CONTENT_MAX {
                return Err(Wrong::Content { len, size });
            }
            return Ok((size > 0).then_some(FileData::Inline(content)));
        }
        let path = match self.bytes(8) {
            b"" | b"-" => None,
            _ => Some(self.text(8)?),
        };
        let digest = match self.optional(10)? {
            Some(digits) => {
                let digits = digits.to_ascii_lowercase();
                Some(Digest::from_hex(&digits).ok_or(Wrong::Digest)?)
            }
            None => None,
        };
        Ok((size > 0).then_some(FileData::Object { path, digest }))
    }

    fn mtime(&self) -> Result<Timestamp, Wrong> {
        let bytes = self.bytes(7);
        let wrong = || Wrong::Number(FIELDS[7], lossy(bytes));
        let dot = bytes.iter().position(|&byte| byte == b'.');
        let dot = dot.ok_or_else(wrong)?;
        let time = Timestamp {
            seconds: number(FIELDS[7], &bytes[..dot])?,
            nanoseconds: number(FIELDS[7], &bytes[dot + 1..])?,
        };
        if time.nanoseconds >= 1_000_000_000 {
            return Err(wrong());
        }
        Ok(time)
    }
}

fn number<T: std::str::FromStr>(name: &'static str, bytes: &[u8]) -> Result<T, Wrong> {
    let parsed = std::str::from_utf8(bytes)
        .ok()
        .and_then(|text| text.parse().ok());
    parsed.ok_or_else(|| Wrong::Number(name, lossy(bytes)))
}

fn text(name: &'static str, escaped: &[u8]) -> Result<Vec<u8>, Wrong> {
    let text = unescape(name, escaped)?;
    if text.contains(&0) {
        return Err(Wrong::Nul(name));
    }
    Ok(text)
}

fn unescape(name: &'static str, escaped: &[u8]) -> Result<Vec<u8>, Wrong> {
    let mut out = Vec::with_capacity(escaped.len());
    let mut rest = escaped.iter();
    let digit = |byte: Option<&u8>| {
        let digit = byte.and_then(|&byte| char::from(byte).to_digit(16));
        digit.and_then(|digit| u8::try_from(digit).ok())
    };
    while let Some(&byte) = rest.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let byte = match rest.next() {
            Some(b'\\') => Some(b'\\'),
            Some(b'n') => Some(b'\n'),
            Some(b'r') => Some(b'\r'),
            Some(b't') => Some(b'\t'),
            Some(b'x') => {
                let (high, low) = (digit(rest.next()), digit(rest.next()));
                high.zip(low).map(|(high, low)| high << 4 | low)
            }
            _ => None,
        };
        out.push(byte.ok_or(Wrong::Escape(name))?);
    }
    Ok(out)
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
