//! Parses one line of a manifest.

use std::path::PathBuf;

use forerun_io::u32_from;
use forerun_vfs::{Device, Timestamp};

use super::super::line::{Components, LineError, Words, components, lossy, number};
use super::super::time::parse_time;
use super::names;
use super::xattr_value;

/// The largest owner. chown(2) takes the next number as "no change".
const OWNER_MAX: u64 = 0xFFFF_FFFE;

#[derive(Debug)]
pub struct Line {
    /// The path of the entry.
    pub path: Components,
    pub action: Action,
}

/// The change that a line makes.
#[derive(Debug)]
pub enum Action {
    /// Creates an entry. An existing directory is changed.
    Make(Attributes, Make),
    /// Changes mode, owner and optionally time of an entry.
    Modify(Attributes),
    /// Adds another name for the entry at this path.
    HardLink(Components),
    /// Adds a host file with its own attributes.
    Like {
        file: PathBuf,
        /// Adds the target of a symbolic link instead of the link.
        follows: bool,
    },
    Xattr {
        name: Vec<u8>,
        value: Vec<u8>,
    },
}

#[derive(Debug)]
pub struct Attributes {
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    pub time: Option<Timestamp>,
}

#[derive(Debug)]
pub enum Make {
    Directory,
    Block(Device),
    Char(Device),
    Symlink(Vec<u8>),
    Fifo,
    Socket,
    Empty,
    /// Contents of a host file.
    Host(PathBuf),
    /// Contents after the entries of the manifest.
    Data {
        len: u64,
        offset: u64,
    },
}

/// Parses a line that is neither blank nor a comment. `is_pseudo` selects the dialect of pseudo
/// files.
pub fn parse(line: &[u8], is_pseudo: bool) -> Result<Line, LineError> {
    let mut words = Words::new(line);
    let path = components(&words.expect("the path")?)?;
    let kind = words.expect("the kind of entry")?;
    let &[letter] = kind.as_slice() else {
        return Err(LineError::Kind(lossy(&kind)));
    };
    let action = match letter {
        b'f' | b'F' => {
            let attributes = attributes(letter, &mut words)?;
            let command = words.remainder("the command")?;
            // charliecloud creates an empty file with a command that writes nothing.
            match command.trim_ascii() {
                b"true" | b":" => Action::Make(attributes, Make::Empty),
                _ => return Err(LineError::Command),
            }
        }
        b'l' | b'h' if is_pseudo => Action::Like {
            file: host_path(words.remainder("the file")?),
            follows: letter == b'h',
        },
        b'l' | b'L' => Action::HardLink(components(&words.expect("the path it is a link to")?)?),
        b'x' => {
            let (name, value) = parse_xattr(words.remainder("NAME=VALUE")?)?;
            Action::Xattr { name, value }
        }
        b'm' | b'M' => Action::Modify(attributes(letter, &mut words)?),
        b'd' | b'D' | b'b' | b'B' | b'c' | b'C' | b's' | b'S' | b'i' | b'I' | b'h' | b'H'
        | b'R' => {
            let attributes = attributes(letter, &mut words)?;
            Action::Make(attributes, make(letter, &mut words)?)
        }
        _ => return Err(LineError::Kind(lossy(&kind))),
    };
    words.end()?;
    Ok(Line { path, action })
}

fn attributes(letter: u8, words: &mut Words<'_>) -> Result<Attributes, LineError> {
    let time = if letter.is_ascii_uppercase() {
        let word = words.expect("the time")?;
        let time = std::str::from_utf8(&word).ok().and_then(parse_time);
        Some(time.ok_or_else(|| LineError::Time(lossy(&word)))?)
    } else {
        None
    };
    Ok(Attributes {
        time,
        mode: mode(&words.expect("the mode")?)?,
        uid: owner(&words.expect("the uid")?, names::PASSWD)?,
        gid: owner(&words.expect("the gid")?, names::GROUP)?,
    })
}

fn make(letter: u8, words: &mut Words<'_>) -> Result<Make, LineError> {
    Ok(match letter.to_ascii_lowercase() {
        b'd' => Make::Directory,
        b'b' => Make::Block(device(words)?),
        b'c' => Make::Char(device(words)?),
        // A target is the rest of the line, including spaces.
        b's' => Make::Symlink(words.remainder("the target")?.to_vec()),
        b'i' => match words.next()?.as_deref() {
            None | Some(b"f") => Make::Fifo,
            Some(b"s") => Make::Socket,
            Some(other) => return Err(LineError::Special(lossy(other))),
        },
        b'h' => Make::Host(host_path(&words.expect("the file with the contents")?)),
        _ => {
            let len = number("length", &words.expect("the length")?, u64::MAX)?;
            let offset = number("offset", &words.expect("the offset")?, u64::MAX)?;
            // Newer versions of unsquashfs write here whether the file was sparse; the contents
            // show it.
            words.next()?;
            Make::Data { len, offset }
        }
    })
}

fn host_path(path: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    std::ffi::OsStr::from_bytes(path).into()
}

fn device(words: &mut Words<'_>) -> Result<Device, LineError> {
    let mut half = |what, missing| -> Result<u32, LineError> {
        let value = number(what, &words.expect(missing)?, u32::MAX.into())?;
        Ok(u32_from(value))
    };
    Ok(Device {
        major: half("major", "the major number")?,
        minor: half("minor", "the minor number")?,
    })
}

fn mode(word: &[u8]) -> Result<u16, LineError> {
    let text = std::str::from_utf8(word).ok();
    let digits = text.filter(|text| text.bytes().all(|byte| (b'0'..=b'7').contains(&byte)));
    let value = digits.and_then(|text| u16::from_str_radix(text, 8).ok());
    let value = value.filter(|&mode| mode <= 0o7777);
    value.ok_or_else(|| LineError::Mode(lossy(word)))
}

/// Parses a number, or looks up a name in a file of this system.
fn owner(word: &[u8], file: &'static str) -> Result<u32, LineError> {
    let value = match word.first() {
        Some(b'0'..=b'9') => Some(number("owner", word, OWNER_MAX)?),
        _ => names::look_up(file, word).map(u64::from),
    };
    let value = value.and_then(|value| u32::try_from(value).ok());
    value.ok_or_else(|| LineError::Owner(lossy(word), file))
}

/// Parses `NAME=VALUE`, with VALUE in the syntax of getfattr(1).
pub fn parse_xattr(definition: &[u8]) -> Result<(Vec<u8>, Vec<u8>), LineError> {
    let failed = || LineError::Xattr(lossy(definition));
    let equals = definition.iter().position(|&byte| byte == b'=');
    let (name, value) = definition.split_at(equals.ok_or_else(failed)?);
    if !name.contains(&b'.') || name.contains(&0) {
        return Err(failed());
    }
    let value = xattr_value::parse(value.get(1..).unwrap_or_default()).ok_or_else(failed)?;
    Ok((name.to_vec(), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_told() {
        for (line, message) in [
            ("a", "the kind of entry is missing"),
            (
                "a q 1",
                "\"q\" is not a kind of entry: d, m, b, c, s, i, l, h, x, or the upper case",
            ),
            (
                "a dd 755 0 0",
                "\"dd\" is not a kind of entry: d, m, b, c, s, i, l, h, x, or the upper case",
            ),
            ("a f 644 0 0", "the command is missing"),
            ("a d", "the mode is missing"),
            (
                "a d 0999 0 0",
                "mode \"0999\" is not an octal number up to 7777",
            ),
            (
                "a d 17777 0 0",
                "mode \"17777\" is not an octal number up to 7777",
            ),
            (
                "a d 755 -1 0",
                "\"-1\" is neither a number nor a name in /etc/passwd",
            ),
            (
                "a d 755 4294967295 0",
                "owner \"4294967295\" is not a number up to 4294967294",
            ),
            (
                "a d 755 0 nosuchgroup!",
                "\"nosuchgroup!\" is neither a number nor a name in /etc/group",
            ),
            ("a d 755 0", "the gid is missing"),
            ("a d 755 0 0 x", "unexpected \"x\" at the end"),
            ("a D 755 0 0", "the gid is missing"),
            (
                "a D never 755 0 0",
                "\"never\" is not a time: seconds since 1970, or as in \"2026-01-31 12:00:00\", UTC",
            ),
            ("a c 644 0 0 5", "the minor number is missing"),
            (
                "a b 644 0 0 5 x",
                "minor \"x\" is not a number up to 4294967295",
            ),
            ("a s 777 0 0", "the target is missing"),
            (
                "a i 644 0 0 x",
                "\"x\" is not a type: f (fifo) or s (socket)",
            ),
            ("a l", "the path it is a link to is missing"),
            ("a h 644 0 0", "the file with the contents is missing"),
            (
                "a x user.a",
                "\"user.a\" is not NAME=VALUE, where VALUE is text, 0x and hexadecimal digits, or 0s and base64",
            ),
            (
                "a x user.a=0xzz",
                "\"user.a=0xzz\" is not NAME=VALUE, where VALUE is text, 0x and hexadecimal digits, or 0s and base64",
            ),
            ("a/../b d 755 0 0", "path \"a/../b\": name is . or .."),
        ] {
            assert_eq!(
                parse(line.as_bytes(), false).unwrap_err().to_string(),
                message,
                "{line}"
            );
        }
    }

    #[test]
    fn commands_that_write_nothing_make_empty_files_and_others_are_refused() {
        for line in ["a f 644 0 0 true", "a F 5 644 0 0  : "] {
            let action = parse(line.as_bytes(), true).unwrap().action;
            assert!(matches!(action, Action::Make(_, Make::Empty)), "{line}");
        }
        for line in ["a f 644 0 0 echo hi", "a f 644 0 0 true; echo hi"] {
            let error = parse(line.as_bytes(), true).unwrap_err().to_string();
            assert!(
                error.starts_with("forerun runs no commands (\"f\"): "),
                "{error}"
            );
        }
    }

    #[test]
    fn what_is_meant_is_understood() {
        let make = |line: &str| match parse(line.as_bytes(), false).unwrap().action {
            Action::Make(attributes, make) => (attributes, make),
            other => panic!("{other:?}"),
        };
        let (attributes, made) = make("dev/console C 12 4600 0 5 5 1");
        assert_eq!(
            (attributes.mode, attributes.uid, attributes.gid),
            (0o4600, 0, 5)
        );
        assert_eq!(attributes.time.unwrap().seconds, 12);
        assert!(matches!(made, Make::Char(Device { major: 5, minor: 1 })));
        assert!(matches!(make("a i 644 root root").1, Make::Fifo));
        assert!(matches!(make("a i 644 0 0 s").1, Make::Socket));
        assert!(matches!(
            make("a R 5 644 0 0 6 7 0").1,
            Make::Data { len: 6, offset: 7 }
        ));
        let (_, made) = make("my\\ link s 777 0 0  a  \"b\\ ");
        assert!(matches!(made, Make::Symlink(target) if target == b"a  \"b\\ "));
        let Action::Xattr { name, value } = parse(b"a x user.k=v = w", false).unwrap().action
        else {
            panic!("an attribute")
        };
        assert_eq!((&name[..], &value[..]), (&b"user.k"[..], &b"v = w"[..]));
        assert_eq!(parse(b"/ m 700 1 2", false).unwrap().path.len(), 0);
        let like = parse(b"a l ../x y", true).unwrap().action;
        assert!(
            matches!(like, Action::Like { file, follows: false } if file == std::path::Path::new("../x y"))
        );
        let like = parse(b"a h x", true).unwrap().action;
        assert!(matches!(like, Action::Like { follows: true, .. }));
        let link = parse(b"a L x", true).unwrap().action;
        assert!(matches!(link, Action::HardLink(_)));
    }
}
