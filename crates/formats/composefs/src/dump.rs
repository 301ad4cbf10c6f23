//! Prints nodes in the format of composefs-dump(5), byte for byte like composefs-info of composefs
//! 1.0.8. SHA-512 digests are an addition.

use forerun_io::usize_from;
use forerun_vfs::{Error, FileSystem, FileType, Metadata, NodeId, Result, Timestamp};

use crate::Composefs;
use crate::ondisk::kind;
use crate::overlay::{
    METACOPY, Metacopy, REDIRECT, Shown, WHITEOUT, WHITEOUTS, below, read_metacopy, shown,
};

/// Longest file contents that a dump can include.
pub const CONTENT_MAX: u64 = 5000;

/// Selects bytes to escape in addition to control characters, backslashes and non-ASCII bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Escape {
    pub blank: bool,
    pub equals: bool,
    /// Escapes a text that is a single `-`.
    pub dash: bool,
}

impl Escape {
    pub const BLANK: Self = Self {
        blank: true,
        equals: false,
        dash: false,
    };
    const FIELD: Self = Self {
        dash: true,
        ..Self::BLANK
    };
    const XATTR: Self = Self {
        equals: true,
        ..Self::BLANK
    };

    pub fn push(self, text: &[u8], out: &mut Vec<u8>) {
        for &byte in text {
            match byte {
                b'\\' => out.extend(b"\\\\"),
                b'\n' => out.extend(b"\\n"),
                b'\r' => out.extend(b"\\r"),
                b'\t' => out.extend(b"\\t"),
                b' ' if !self.blank => out.push(b' '),
                b'-' if self.dash && text.len() == 1 => out.extend(b"\\x2d"),
                b'=' if self.equals => out.extend(b"\\x3d"),
                b'!'..=b'~' => out.push(byte),
                _ => out.extend(format!("\\x{byte:02x}").as_bytes()),
            }
        }
    }
}

/// The name of a node in a dump.
pub struct DumpName<'n> {
    pub path: &'n [u8],
    /// The path in an earlier line of the same node.
    pub link_to: Option<&'n [u8]>,
}

/// The attributes of a node, split into those that a dump lists and those that other fields of the
/// line express.
#[derive(Default)]
struct Attributes {
    redirect: Option<Vec<u8>>,
    metacopy: Option<Vec<u8>>,
    is_whiteout: bool,
    text: Vec<u8>,
}

impl Attributes {
    fn of(fs: &Composefs, node: NodeId, is_file: bool) -> Result<Self> {
        let mut found = Self::default();
        fs.layer().xattrs(node, &mut |name, value| match name {
            REDIRECT => found.redirect = Some(value.to_vec()).filter(|_| is_file),
            METACOPY => found.metacopy = Some(value.to_vec()).filter(|_| is_file),
            _ if name == WHITEOUT[0] && is_file => found.is_whiteout = true,
            _ if name == WHITEOUT[1] || WHITEOUTS.contains(&name) => {}
            _ => match shown(name) {
                Shown::Plain(name) => found.push(name, value),
                Shown::Unescaped(name) => found.push(&name, value),
                Shown::Hidden => {}
            },
        })?;
        Ok(found)
    }

    fn push(&mut self, name: &[u8], value: &[u8]) {
        self.text.push(b' ');
        Escape::XATTR.push(name, &mut self.text);
        self.text.push(b'=');
        Escape::XATTR.push(value, &mut self.text);
    }
}

/// Returns the line of a node, with its line break. `read` returns a number of content bytes from
/// the image. A file in the image of more than `CONTENT_MAX` bytes is [`Error::Unsupported`].
pub fn dump_line(
    fs: &Composefs,
    (node, metadata): (NodeId, &Metadata),
    name: &DumpName<'_>,
    read: impl FnOnce(usize) -> Result<Vec<u8>>,
) -> Result<Vec<u8>> {
    let is_file = metadata.is_file();
    let attributes = Attributes::of(fs, node, is_file)?;
    let (kind, size) = if attributes.is_whiteout {
        (FileType::CharDevice, 0)
    } else {
        (metadata.kind, metadata.size)
    };
    let is_inline = is_file && attributes.metacopy.is_none() && attributes.redirect.is_none();
    let content = match size {
        1..=CONTENT_MAX if is_inline => Some(read(usize_from(size))?),
        0..=CONTENT_MAX => None,
        _ if is_inline => {
            let reason =
                format!("a dump of {size} bytes in the image; {CONTENT_MAX} are the limit");
            return Err(Error::Unsupported(reason));
        }
        _ => None,
    };
    let payload = match (name.link_to, kind) {
        (Some(link_to), _) => Some(link_to.to_vec()),
        (None, FileType::Regular) => attributes.redirect.as_deref().map(below),
        (None, FileType::Symlink) => Some(fs.read_link(node)?),
        (None, _) => None,
    };
    let digest = match attributes.metacopy.as_deref().map(read_metacopy) {
        Some(Metacopy::Digest(digest)) => digest.to_string(),
        _ => "-".to_string(),
    };
    let link = if name.link_to.is_some() { "@" } else { "" };
    let Timestamp {
        seconds,
        nanoseconds,
    } = metadata.mtime;
    let mut line = Vec::new();
    Escape::BLANK.push(name.path, &mut line);
    let numbers = format!(
        " {size} {link}{:o} {} {} {} {} {seconds}.{nanoseconds} ",
        metadata.mode | type_bits(kind),
        metadata.nlink,
        metadata.uid,
        metadata.gid,
        metadata.device.pack().unwrap_or_default(),
    );
    line.extend(numbers.as_bytes());
    push_optional(payload.as_deref(), &mut line);
    line.push(b' ');
    push_optional(content.as_deref(), &mut line);
    line.extend(format!(" {digest}").as_bytes());
    line.extend(attributes.text);
    line.push(b'\n');
    Ok(line)
}

const fn type_bits(kind: FileType) -> u16 {
    match kind {
        FileType::Fifo => kind::FIFO,
        FileType::CharDevice => kind::CHAR,
        FileType::Directory => kind::DIRECTORY,
        FileType::BlockDevice => kind::BLOCK,
        FileType::Regular => kind::REGULAR,
        FileType::Symlink => kind::SYMLINK,
        FileType::Socket => kind::SOCKET,
    }
}

fn push_optional(field: Option<&[u8]>, line: &mut Vec<u8>) {
    match field {
        Some(field) => Escape::FIELD.push(field, line),
        None => line.push(b'-'),
    }
}
