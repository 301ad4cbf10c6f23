//! Parses one entry of an archive: its path, its metadata, and its kind.

use std::io::{self, Read};

use forerun_io::u16_from;
use forerun_vfs::{ACL_ACCESS, ACL_DEFAULT, Device, NameError, PosixAcl, Timestamp};
use tar::{Entry, EntryType};

use super::super::{BuildError, NewNode, NodeKind};
use super::pax::{Headers, Record};
use super::sparse::{self, SparseBody};

/// The kind of an entry's body.
pub enum Body {
    /// An entry that an image cannot hold.
    Skip,
    /// Another name for the file at this path.
    HardLink(Vec<Vec<u8>>),
    /// A node without data.
    Node(NodeKind),
    /// A regular file, and the stored form of a sparse one.
    Data {
        len: u64,
        sparse: Option<SparseBody>,
    },
}

/// An entry without its data.
pub struct Parsed {
    /// Components of the path; none for the root.
    pub path: Vec<Vec<u8>>,
    /// Metadata; its kind is still to be set.
    pub node: NewNode,
    pub body: Body,
    /// Offset in the archive of the entry's data, and their length there.
    pub stored: (u64, u64),
}

impl Parsed {
    pub fn failed(&self, reason: &'static str) -> BuildError {
        BuildError::Conflict {
            path: self.path.join(&b'/'),
            reason,
        }
    }

    pub fn failed_with(&self, reason: String) -> BuildError {
        self.broken(io::Error::new(io::ErrorKind::InvalidData, reason))
    }

    pub fn broken(&self, source: io::Error) -> BuildError {
        BuildError::Tar {
            entry: String::from_utf8_lossy(&self.path.join(&b'/')).into_owned(),
            source,
        }
    }

    /// Adds the whole path to an error of the tree, which has only the last component.
    pub fn named(&self, error: BuildError) -> BuildError {
        let path = self.path.join(&b'/');
        match error {
            BuildError::Name { source, .. } => BuildError::Name { path, source },
            BuildError::Conflict { reason, .. } => BuildError::Conflict { path, reason },
            other => other,
        }
    }
}

/// Parses the headers, and the records before them.
pub fn parse<R: Read>(entry: &mut Entry<'_, R>, headers: Headers) -> Result<Parsed, BuildError> {
    let mut raw_path = entry.path_bytes().into_owned();
    let mut extra = Extra::default();
    let taken = extra.take_all(headers.records);
    if let Some(path) = extra.path.take() {
        raw_path = path;
    }
    let broken = |source| BuildError::Tar {
        entry: String::from_utf8_lossy(&raw_path).into_owned(),
        source,
    };
    taken.map_err(broken)?;
    let kind = entry.header().entry_type();
    if extra.size.is_some_and(|size| size != entry.size()) && kind != EntryType::GNUSparse {
        let reason = "its size follows an attribute that cannot be read";
        return Err(broken(io::Error::new(io::ErrorKind::Unsupported, reason)));
    }
    let path = components(extra.sparse.name.as_deref().unwrap_or(&raw_path))?;
    let header = entry.header();
    let mut node = NewNode::new(NodeKind::Fifo, 0);
    let id = |id: u64| u32::try_from(id).map_err(|_| too_large("owner"));
    node.mode = u16_from(u64::from(header.mode().map_err(broken)? & 0o7777));
    let uid = extra.uid.map_or_else(|| header.uid(), Ok).and_then(id);
    node.uid = uid.map_err(broken)?;
    let gid = extra.gid.map_or_else(|| header.gid(), Ok).and_then(id);
    node.gid = gid.map_err(broken)?;
    node.mtime = match extra.mtime {
        Some(mtime) => mtime,
        None => Timestamp {
            seconds: i64::try_from(header.mtime().map_err(broken)?)
                .map_err(|_| broken(too_large("time")))?,
            nanoseconds: 0,
        },
    };
    node.xattrs = extra.xattrs;
    let device = || -> io::Result<Device> {
        Ok(Device {
            major: header.device_major()?.unwrap_or(0),
            minor: header.device_minor()?.unwrap_or(0),
        })
    };
    let link = || {
        let link = entry.link_name_bytes().map(|link| link.into_owned());
        let link = extra.link_path.clone().or(link);
        link.ok_or(io::ErrorKind::InvalidData)
    };
    // Of a sparse file in the older form the size is that of the file.
    let (blocks, len) = match &headers.sparse {
        Some((parts, blocks)) => (*blocks, parts.iter().map(|(_, len)| len).sum()),
        None => (0, entry.size()),
    };
    let too_long = || broken(io::ErrorKind::InvalidData.into());
    let start = blocks.checked_mul(512).ok_or_else(too_long)?;
    let start = start.checked_add(entry.raw_file_position());
    let stored = (start.ok_or_else(too_long)?, len);
    let body = match kind {
        EntryType::Directory => Body::Node(NodeKind::Directory(std::collections::BTreeMap::new())),
        // Old archives mark directories only by a trailing slash.
        EntryType::Regular if raw_path.ends_with(b"/") => {
            Body::Node(NodeKind::Directory(std::collections::BTreeMap::new()))
        }
        EntryType::Symlink => Body::Node(NodeKind::Symlink(
            link().map_err(|kind| broken(kind.into()))?,
        )),
        EntryType::Link => {
            Body::HardLink(components(&link().map_err(|kind| broken(kind.into()))?)?)
        }
        EntryType::Block => Body::Node(NodeKind::BlockDevice(device().map_err(broken)?)),
        EntryType::Char => Body::Node(NodeKind::CharDevice(device().map_err(broken)?)),
        EntryType::Fifo => Body::Node(NodeKind::Fifo),
        EntryType::GNUSparse => {
            let parts = headers.sparse.map_or_else(Vec::new, |(parts, _)| parts);
            Body::Data {
                len: entry.size(),
                sparse: Some(SparseBody { start: 0, parts }),
            }
        }
        EntryType::Regular | EntryType::Continuous => {
            let (len, sparse) = extra.sparse.resolve(stored.1, entry).map_err(broken)?;
            Body::Data { len, sparse }
        }
        EntryType::XGlobalHeader => Body::Skip,
        other => {
            let kind = char::from(other.as_byte());
            let reason = format!("entries of type {kind:?} are not supported");
            return Err(broken(io::Error::new(io::ErrorKind::Unsupported, reason)));
        }
    };
    Ok(Parsed {
        path,
        node,
        body,
        stored,
    })
}

/// The values of PAX headers.
#[derive(Default)]
struct Extra {
    path: Option<Vec<u8>>,
    link_path: Option<Vec<u8>>,
    size: Option<u64>,
    uid: Option<u64>,
    gid: Option<u64>,
    mtime: Option<Timestamp>,
    xattrs: std::collections::BTreeMap<Vec<u8>, Vec<u8>>,
    sparse: sparse::Keys,
}

impl Extra {
    fn take_all(&mut self, records: Vec<Record>) -> io::Result<()> {
        let mut records = records.into_iter();
        records.try_for_each(|(key, value)| self.take(&key, &value))
    }

    fn take(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        match key {
            b"path" => self.path = Some(value.to_vec()),
            b"linkpath" => self.link_path = Some(value.to_vec()),
            b"size" => self.size = Some(sparse::number(value)?),
            b"uid" => self.uid = Some(sparse::number(value)?),
            b"gid" => self.gid = Some(sparse::number(value)?),
            b"mtime" => self.mtime = Some(time(value)?),
            b"SCHILY.acl.access" => self.acl(ACL_ACCESS, value),
            b"SCHILY.acl.default" => self.acl(ACL_DEFAULT, value),
            _ => {
                if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                    self.xattrs.insert(name.to_vec(), value.to_vec());
                } else if let Some(key) = key.strip_prefix(b"GNU.sparse.") {
                    self.sparse.take(key, value)?;
                }
            }
        }
        Ok(())
    }
}

impl Extra {
    /// Sets the attribute of an access control list. One that names users without their numbers is left out, as
    /// the tar driver does.
    fn acl(&mut self, name: &[u8], text: &[u8]) {
        if let Ok(acl) = PosixAcl::parse(text)
            && !(name == ACL_ACCESS && acl.is_mode())
        {
            self.xattrs.insert(name.to_vec(), acl.to_bytes());
        }
    }
}

fn too_large(what: &str) -> io::Error {
    let reason = format!("its {what} is larger than any filesystem can store");
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

/// Parses seconds with an optional fraction, possibly negative. The fraction always counts forward.
fn time(value: &[u8]) -> io::Result<Timestamp> {
    let bad = || io::Error::new(io::ErrorKind::InvalidData, "a time that is not a number");
    let text = std::str::from_utf8(value).map_err(|_| bad())?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let mut seconds: i64 = whole.parse().map_err(|_| bad())?;
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(bad());
    }
    let digits = format!("{:0<9}", fraction.get(..9).unwrap_or(fraction));
    let mut nanoseconds: u32 = digits.parse().map_err(|_| bad())?;
    if whole.starts_with('-') && nanoseconds > 0 {
        seconds = seconds.checked_sub(1).ok_or_else(bad)?;
        nanoseconds = 1_000_000_000 - nanoseconds;
    }
    Ok(Timestamp {
        seconds,
        nanoseconds,
    })
}

/// Splits a path into components without `.` and leading slashes, as tar does. Refuses `..`.
fn components(path: &[u8]) -> Result<Vec<Vec<u8>>, BuildError> {
    let names = path
        .split(|&byte| byte == b'/')
        .filter(|name| !name.is_empty() && *name != b".");
    let names: Vec<_> = names.map(<[u8]>::to_vec).collect();
    if names.iter().any(|name| name == b"..") {
        return Err(BuildError::Name {
            path: path.to_vec(),
            source: NameError::Dots,
        });
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (text, seconds, nanoseconds) in [
            ("0", 0, 0),
            ("12.5", 12, 500_000_000),
            ("12.000000001", 12, 1),
            ("12.0000000019", 12, 1),
            ("-1", -1, 0),
            ("-1.25", -2, 750_000_000),
            ("-0.25", -1, 750_000_000),
        ] {
            assert_eq!(
                time(text.as_bytes()).unwrap(),
                Timestamp {
                    seconds,
                    nanoseconds
                },
                "{text}"
            );
        }
        for text in ["", "x", "1.x", "1.-5", "99999999999999999999"] {
            assert!(time(text.as_bytes()).is_err(), "{text}");
        }
    }
}
