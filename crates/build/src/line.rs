//! Parses lines of the small files that describe an image: words with quotes and escapes.

use std::io;
use std::path::PathBuf;

use forerun_vfs::NameError;

/// An error in a line of a manifest, a priority list or a map of owners.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LineError {
    /// A quote that is not closed.
    #[error("a quote is not closed")]
    Quote,
    /// A backslash at the end.
    #[error("the line ends with a backslash")]
    Backslash,
    /// The line is longer than any useful line.
    #[error("longer than {0} bytes")]
    TooLong(usize),
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A word too many.
    #[error("unexpected {0:?} at the end")]
    Extra(String),
    /// An unknown letter for the kind of entry.
    #[error("{0:?} is not a kind of entry: d, m, b, c, s, i, l, h, x, or the upper case")]
    Kind(String),
    /// Contents that come from a command.
    #[error(
        "forerun runs no commands (\"f\"): run the command first, and name its output with \
         \"h mode uid gid FILE\""
    )]
    Command,
    #[error("mode {0:?} is not an octal number up to 7777")]
    Mode(String),
    #[error("{0:?} is neither a number nor a name in {1}")]
    Owner(String, &'static str),
    /// A word that is not a number, or exceeds `max`.
    #[error("{what} {word:?} is not a number up to {max}")]
    Number {
        what: &'static str,
        word: String,
        max: u64,
    },
    #[error("{0:?} is not a time: seconds since 1970, or as in \"2026-01-31 12:00:00\", UTC")]
    Time(String),
    #[error("priority {0:?} is not a number from -32768 to 32767")]
    Priority(String),
    /// A kind of special file other than fifo and socket.
    #[error("{0:?} is not a type: f (fifo) or s (socket)")]
    Special(String),
    /// A word that is not an extended attribute.
    #[error(
        "{0:?} is not NAME=VALUE, where VALUE is text, 0x and hexadecimal digits, or 0s and base64"
    )]
    Xattr(String),
    /// A name that no image can store.
    #[error("path {path:?}: {source}")]
    Name { path: String, source: NameError },
    /// The path is deeper than [`Limits::depth`](forerun_vfs::Limits::depth).
    #[error("path {0:?} is too deep")]
    Depth(String),
    /// More lines than [`Limits::tree_entries`](forerun_vfs::Limits::tree_entries).
    #[error("more entries than the limit allows")]
    Entries,
    /// The line would create a path that exists already.
    #[error("{0:?} exists already; \"m\" changes what exists")]
    Exists(String),
    #[error("{0:?} does not exist")]
    NotFound(String),
    /// A path leads through something other than a directory.
    #[error("{0:?} is not a directory")]
    NotADirectory(String),
    /// The target of a hard link is a directory.
    #[error("the target is a directory, which cannot have a second name")]
    IsADirectory,
    #[error("{}: {source}", path.display())]
    Host { path: PathBuf, source: io::Error },
    /// A line refers to data after the entries, but the manifest has none.
    #[error("this manifest cannot have data after its entries: it is not a regular file")]
    NoData,
    /// Contents beyond the end of the manifest.
    #[error("the {len} bytes of the file at {offset} reach past the end of the data")]
    PastData {
        /// Offset of the contents in the data.
        offset: u64,
        len: u64,
    },
    /// Not a range of an owner map.
    #[error("{0:?} is not FROM:TO or FROM:TO:COUNT, with numbers below 4294967295")]
    Range(String),
    /// A range that overlaps another one of the map.
    #[error("{0:?} begins in a range that another mapping covers")]
    Overlap(String),
}

/// Components of a path in the tree; empty for the root.
pub type Components = Vec<Vec<u8>>;

#[derive(Debug)]
pub struct Words<'l> {
    rest: &'l [u8],
}

impl<'l> Words<'l> {
    /// Returns a reader of the words of a line, which must lack its line end.
    pub const fn new(line: &'l [u8]) -> Self {
        Self { rest: line }
    }

    /// Returns the next word. Spaces and tabs separate words; double quotes and backslashes protect
    /// them. A backslash with three octal digits is the byte with that number.
    pub fn next(&mut self) -> Result<Option<Vec<u8>>, LineError> {
        self.rest = self.rest.trim_ascii_start();
        let mut word = Vec::new();
        let (mut quoted, mut at) = (false, 0);
        if self.rest.is_empty() {
            return Ok(None);
        }
        while let Some(&byte) = self.rest.get(at) {
            at += 1;
            match byte {
                b'\\' => {
                    let (byte, len) = escaped(&self.rest[at..])?;
                    word.push(byte);
                    at += len;
                }
                b'"' => quoted = !quoted,
                _ if byte.is_ascii_whitespace() && !quoted => break,
                _ => word.push(byte),
            }
        }
        if quoted {
            return Err(LineError::Quote);
        }
        self.rest = &self.rest[at..];
        Ok(Some(word))
    }

    /// Returns the next word, or an error that names the missing `what`.
    pub fn expect(&mut self, what: &'static str) -> Result<Vec<u8>, LineError> {
        self.next()?.ok_or(LineError::Missing(what))
    }

    /// Returns the rest of the line without leading space.
    pub fn remainder(&mut self, what: &'static str) -> Result<&'l [u8], LineError> {
        let rest = std::mem::take(&mut self.rest).trim_ascii_start();
        if rest.is_empty() {
            Err(LineError::Missing(what))
        } else {
            Ok(rest)
        }
    }

    /// Fails if a word is left.
    pub fn end(&mut self) -> Result<(), LineError> {
        match self.next()? {
            Some(word) => Err(LineError::Extra(lossy(&word))),
            None => Ok(()),
        }
    }
}

fn escaped(rest: &[u8]) -> Result<(u8, usize), LineError> {
    if let Some(digits @ [b'0'..=b'3', b'0'..=b'7', b'0'..=b'7']) = rest.get(..3) {
        let value = digits
            .iter()
            .fold(0, |value, digit| value * 8 + (digit - b'0'));
        return Ok((value, 3));
    }
    let &byte = rest.first().ok_or(LineError::Backslash)?;
    Ok((byte, 1))
}

pub fn number(what: &'static str, word: &[u8], max: u64) -> Result<u64, LineError> {
    let text = std::str::from_utf8(word).ok();
    let digits = text.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let value = digits.and_then(|text| text.parse().ok());
    let value = value.filter(|value| *value <= max);
    value.ok_or_else(|| LineError::Number {
        what,
        word: lossy(word),
        max,
    })
}

/// Splits a path in the tree into components. Drops leading slashes and `.`.
pub fn components(path: &[u8]) -> Result<Components, LineError> {
    let names = path
        .split(|&byte| byte == b'/')
        .filter(|name| !name.is_empty() && *name != b".");
    let names: Vec<_> = names.map(<[u8]>::to_vec).collect();
    for name in &names {
        let checked = forerun_vfs::check_name(name, usize::from(u16::MAX));
        checked.map_err(|source| LineError::Name {
            path: lossy(path),
            source,
        })?;
    }
    Ok(names)
}

pub fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns whether a line has only space or a comment.
pub fn is_blank(line: &[u8]) -> bool {
    matches!(line.trim_ascii().first(), None | Some(b'#'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words() {
        for (line, expected) in [
            (&b""[..], &[][..]),
            (b"a  b\tc ", &[&b"a"[..], b"b", b"c"]),
            (b"\"a b\" c", &[b"a b", b"c"]),
            (b"a\\ b\\\"\\\\ c", &[b"a b\"\\", b"c"]),
            (b"a\\012b \\377 \\08", &[b"a\nb", b"\xff", b"08"]),
            (b"\"\" x", &[b"", b"x"]),
            (b"a\"b c\"d", &[b"ab cd"]),
        ] {
            let mut words = Words::new(line);
            let mut found = Vec::new();
            while let Some(word) = words.next().unwrap() {
                found.push(word);
            }
            assert_eq!(found, expected, "{}", lossy(line));
        }
        for (line, message) in [
            ("\"a", "a quote is not closed"),
            ("a\\", "the line ends with a backslash"),
        ] {
            let error = Words::new(line.as_bytes()).next().unwrap_err();
            assert_eq!(error.to_string(), message);
        }
    }

    #[test]
    fn paths() {
        assert_eq!(components(b"/").unwrap(), Vec::<Vec<u8>>::new());
        assert_eq!(components(b"./a//b/").unwrap(), [b"a", b"b"]);
        for path in [&b"a/../b"[..], b"a\0"] {
            assert!(components(path).is_err());
        }
    }
}
