//! Parses the records of pax extended headers: `LENGTH KEY=VALUE\n`.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use forerun_vfs::{ACL_ACCESS, ACL_DEFAULT, AclError, PosixAcl, Timestamp};

use crate::error::{Check, lossy};
use crate::header::until_nul;

/// Maximum number of extended attributes of a file. The limit bounds the comparison of each with
/// all others.
pub const XATTRS_MAX: usize = 1024;
/// Linux's limits on the name and value of an extended attribute (`XATTR_NAME_MAX`,
/// `XATTR_SIZE_MAX`).
const XATTR_NAME_MAX: usize = 255;
const XATTR_VALUE_MAX: usize = 65_536;
/// Maximum number of ignored records of a file that are kept for warnings.
const ODD_MAX: usize = 16;

/// Prefix of the keys of GNU sparse files.
const SPARSE: &[u8] = b"GNU.sparse.";

/// The values that an extended header sets for the next file, or for all later files.
#[derive(Clone, Debug, Default)]
pub struct Records {
    pub path: Option<Vec<u8>>,
    pub link: Option<Vec<u8>>,
    pub size: Option<u64>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub mtime: Option<Timestamp>,
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// The attribute name of an access control list that could not be parsed, with the error.
    pub refused_acl: Option<(&'static [u8], AclError)>,
    pub sparse: Sparse,
    /// Records that are ignored.
    pub odd: Vec<Check>,
    /// An invalid record that changes the meaning of the file.
    pub fatal: Option<Check>,
}

/// The keys of GNU sparse files.
#[derive(Clone, Debug, Default)]
pub struct Sparse {
    pub major: Option<u64>,
    pub minor: Option<u64>,
    /// The file's name. The path is a substitute for programs without support for sparse files.
    pub name: Option<Vec<u8>>,
    pub size: Option<u64>,
    /// Offsets and lengths, alternating.
    pub map: Vec<u64>,
    pub has_map: bool,
}

/// Returns whether a file can have this attribute.
pub fn can_be_xattr(name: &[u8], value: &[u8]) -> bool {
    let has_name = !name.is_empty() && name.len() <= XATTR_NAME_MAX && !name.contains(&0);
    has_name && value.len() <= XATTR_VALUE_MAX
}

impl Records {
    /// Adds the records of an extended header. Later records replace earlier ones. Invalid values
    /// are ignored, except the size, without which the next header cannot be found.
    pub fn add(&mut self, bytes: &[u8]) -> Result<(), Check> {
        let mut rest = bytes;
        let mut record = 0;
        // Zeros after the last record are padding.
        while !rest.is_empty() && rest.iter().any(|&byte| byte != 0) {
            let Some((key, value, tail)) = split(rest) else {
                self.fatal.get_or_insert(Check::Record { record });
                return Ok(());
            };
            match self.set(key, value) {
                Err(check) if key == b"size" => return Err(check),
                Err(check) if matches!(key, b"uid" | b"gid") || key.starts_with(SPARSE) => {
                    self.fatal.get_or_insert(check);
                }
                Err(check) => self.note(check),
                Ok(()) => {}
            }
            (rest, record) = (tail, record + 1);
        }
        Ok(())
    }

    pub fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), Check> {
        let fail = || Check::Value {
            key: lossy(key),
            value: lossy(value),
        };
        if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
            let name = keyword_decoded(name);
            self.xattr(name, value.to_vec()).ok_or_else(fail)?;
        } else if let Some(name) = key.strip_prefix(b"LIBARCHIVE.xattr.") {
            let name = percent_decoded(name).ok_or_else(fail)?;
            let value = match STANDARD_NO_PAD.decode(value) {
                Ok(value) => value,
                Err(_) => STANDARD.decode(value).map_err(|_| fail())?,
            };
            self.xattr(name, value).ok_or_else(fail)?;
        } else if key.starts_with(SPARSE) {
            self.sparse.set(key, value).ok_or_else(fail)?;
        } else {
            self.standard(key, value).ok_or_else(fail)?;
        }
        Ok(())
    }

    /// Sets a standard key. An empty value removes an earlier one.
    fn standard(&mut self, key: &[u8], value: &[u8]) -> Option<()> {
        match key {
            b"path" => self.path = name(value),
            b"linkpath" => self.link = name(value),
            b"size" => self.size = optional(value, decimal)?,
            b"uid" => self.uid = optional(value, word)?,
            b"gid" => self.gid = optional(value, word)?,
            b"mtime" => self.mtime = optional(value, timestamp)?,
            b"RHT.security.selinux" => {
                self.xattr(b"security.selinux".to_vec(), value.to_vec())?;
            }
            b"SCHILY.acl.access" => self.acl(ACL_ACCESS, value)?,
            b"SCHILY.acl.default" => self.acl(ACL_DEFAULT, value)?,
            _ => {}
        }
        Some(())
    }

    /// Sets an attribute, and replaces an earlier one with the same name. Returns `None` if there
    /// are too many, or if no file can have the attribute.
    fn xattr(&mut self, name: Vec<u8>, value: Vec<u8>) -> Option<()> {
        if !can_be_xattr(&name, &value) {
            return None;
        }
        self.xattrs.retain(|(other, _)| *other != name);
        if self.xattrs.len() == XATTRS_MAX {
            return None;
        }
        self.xattrs.push((name, value));
        Some(())
    }

    /// Sets the attribute of an access control list from its text.
    fn acl(&mut self, name: &'static [u8], text: &[u8]) -> Option<()> {
        match PosixAcl::parse(text) {
            Ok(acl) if name == ACL_ACCESS && acl.is_mode() => Some(()),
            Ok(acl) => self.xattr(name.to_vec(), acl.to_bytes()),
            Err(error) => {
                self.refused_acl = Some((name, error));
                Some(())
            }
        }
    }

    /// Notes a deviation. Those of many global headers may come before one file.
    pub fn note(&mut self, check: Check) {
        if self.odd.len() < ODD_MAX {
            self.odd.push(check);
        }
    }

    /// Takes the tolerated deviations of the file at `path`.
    pub fn take_odd(&mut self, path: &[u8]) -> Vec<Check> {
        let acl = self.lacking_acl().map(Check::Acl);
        let odd = self.odd.drain(..).chain(acl);
        odd.map(|check| Check::Odd {
            path: lossy(path),
            check: Box::new(check),
        })
        .collect()
    }

    /// Returns the reason why the file lacks an access control list. A list that is also present as
    /// an attribute does not count as lacking.
    fn lacking_acl(&mut self) -> Option<AclError> {
        let (name, error) = self.refused_acl.take()?;
        let is_there = self.xattrs.iter().any(|(other, _)| other == name);
        (!is_there).then_some(error)
    }

    /// Returns these records, completed from `globals`. Names, lengths and attributes belong to one
    /// file and are ignored in a global header.
    pub fn over(mut self, globals: &Self) -> Self {
        self.uid = self.uid.or(globals.uid);
        self.gid = self.gid.or(globals.gid);
        self.mtime = self.mtime.or(globals.mtime);
        self
    }
}

impl Sparse {
    fn set(&mut self, key: &[u8], value: &[u8]) -> Option<()> {
        match key {
            b"GNU.sparse.major" => self.major = Some(decimal(value)?),
            b"GNU.sparse.minor" => self.minor = Some(decimal(value)?),
            b"GNU.sparse.name" => self.name = name(value),
            b"GNU.sparse.size" | b"GNU.sparse.realsize" => self.size = Some(decimal(value)?),
            b"GNU.sparse.numblocks" => self.has_map = true,
            b"GNU.sparse.offset" | b"GNU.sparse.numbytes" => {
                // Offset and length must alternate.
                if self.map.len().is_multiple_of(2) != key.ends_with(b"offset") {
                    return None;
                }
                self.has_map = true;
                self.map.push(decimal(value)?);
            }
            b"GNU.sparse.map" => {
                self.has_map = true;
                self.map.clear();
                for number in value.split(|&byte| byte == b',') {
                    self.map.push(decimal(number)?);
                }
            }
            _ => {}
        }
        Some(())
    }
}

/// Splits off the first record: key, value, rest.
fn split(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = bytes.iter().take(20).position(|&byte| byte == b' ')?;
    let len = usize::try_from(decimal(bytes.get(..space)?)?).ok()?;
    let (record, rest) = bytes.split_at_checked(len)?;
    let record = record.get(space + 1..)?.strip_suffix(b"\n")?;
    let equals = record.iter().position(|&byte| byte == b'=')?;
    Some((record.get(..equals)?, record.get(equals + 1..)?, rest))
}

/// Returns a path, which ends at the first NUL, like in all programs; `None` if it is empty.
fn name(value: &[u8]) -> Option<Vec<u8>> {
    let name = until_nul(value);
    (!name.is_empty()).then(|| name.to_vec())
}

/// Parses a value. An empty one is valid and means `None`.
fn optional<T>(value: &[u8], parse: fn(&[u8]) -> Option<T>) -> Option<Option<T>> {
    match value {
        [] => Some(None),
        value => parse(value).map(Some),
    }
}

/// Parses decimal digits and nothing else.
pub fn decimal(bytes: &[u8]) -> Option<u64> {
    let is_number = !bytes.is_empty() && bytes.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(bytes)
        .ok()
        .filter(|_| is_number)?
        .parse()
        .ok()
}

fn word(bytes: &[u8]) -> Option<u32> {
    decimal(bytes)?.try_into().ok()
}

/// Parses seconds with an optional sign and fraction. Digits beyond nanoseconds are dropped.
fn timestamp(bytes: &[u8]) -> Option<Timestamp> {
    let (negative, bytes) = match bytes.strip_prefix(b"-") {
        Some(rest) => (true, rest),
        None => (false, bytes),
    };
    let mut parts = bytes.splitn(2, |&byte| byte == b'.');
    let seconds = i64::try_from(decimal(parts.next()?)?).ok()?;
    let fraction = parts.next().unwrap_or_default();
    if !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digits = fraction.iter().copied().chain(std::iter::repeat(b'0'));
    let nanoseconds = digits
        .take(9)
        .fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0'));
    Some(match (negative, nanoseconds) {
        (false, nanoseconds) => Timestamp {
            seconds,
            nanoseconds,
        },
        (true, 0) => Timestamp {
            seconds: -seconds,
            nanoseconds: 0,
        },
        (true, nanoseconds) => Timestamp {
            seconds: -seconds - 1,
            nanoseconds: 1_000_000_000 - nanoseconds,
        },
    })
}

/// Decodes an attribute name from GNU tar, which escapes only `=` and `%`.
fn keyword_decoded(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = name;
    while let Some((&first, tail)) = rest.split_first() {
        let escaped = [(&b"%3D"[..], b'='), (b"%25", b'%')];
        let escaped = escaped
            .iter()
            .find_map(|(code, byte)| Some((*byte, rest.strip_prefix(*code)?)));
        let (byte, tail) = escaped.unwrap_or((first, tail));
        out.push(byte);
        rest = tail;
    }
    out
}

fn percent_decoded(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut rest = bytes;
    while let Some((&first, tail)) = rest.split_first() {
        rest = match first {
            b'%' => {
                let (digits, tail) = tail.split_at_checked(2)?;
                let digit = |at: usize| digits.get(at).and_then(|&d| char::from(d).to_digit(16));
                out.push(u8::try_from(digit(0)? * 16 + digit(1)?).ok()?);
                tail
            }
            other => {
                out.push(other);
                tail
            }
        };
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_fractions_and_may_be_negative() {
        let check = |text: &str, expected: Option<(i64, u32)>| {
            let time = timestamp(text.as_bytes()).map(|t| (t.seconds, t.nanoseconds));
            assert_eq!(time, expected, "{text}");
        };
        check("12", Some((12, 0)));
        check("12.5", Some((12, 500_000_000)));
        check("-1.25", Some((-2, 750_000_000)));
        check("-3", Some((-3, 0)));
        check("1.2.3", None);
        check("", None);
    }

    #[test]
    fn attributes_that_no_file_can_have_are_refused() {
        let mut records = Records::default();
        assert!(records.set(b"SCHILY.xattr.", b"a").is_err());
        assert!(records.set(b"LIBARCHIVE.xattr.", b"YQ").is_err());
        let long = vec![b'a'; 65_537];
        assert!(records.set(b"SCHILY.xattr.user.a", &long).is_err());
        assert_eq!(records.xattrs, []);
        let most = &long[1..];
        records.set(b"SCHILY.xattr.user.a", most).unwrap();
        assert_eq!(records.xattrs, [(b"user.a".to_vec(), most.to_vec())]);
    }

    #[test]
    fn records_that_lie_about_their_length_are_refused() {
        for bytes in [
            &b"6 a=b\n7 c"[..],
            b"99 a=b\n",
            b"x a=b\n",
            b"6 ab\nx",
            b"0 a=b\n",
        ] {
            let mut records = Records::default();
            records.add(bytes).unwrap();
            let is_damaged = matches!(records.fatal, Some(Check::Record { .. }));
            assert!(is_damaged, "{bytes:?}");
        }
        let mut records = Records::default();
        records
            .add(b"12 path=abc\n28 LIBARCHIVE.xattr.a%20=YQ\n")
            .unwrap();
        assert_eq!(records.path.as_deref(), Some(&b"abc"[..]));
        assert_eq!(records.xattrs, [(b"a ".to_vec(), b"a".to_vec())]);
    }
}
