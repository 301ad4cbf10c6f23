//! Converts an entry of a table to a member of the archive.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use forerun_vfs::{Device, Extent, FileType, Timestamp};
use serde::Deserialize;

use super::error::EntryCheck;
use crate::error::lossy;
use crate::parser::{Kind, Member};
use crate::pax::{XATTRS_MAX, can_be_xattr};

/// An entry: a member of the archive, or a further chunk of the previous member. Field names are
/// those of the specifications.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TocEntry {
    pub name: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub size: u64,
    link_name: String,
    mode: i64,
    uid: u64,
    gid: u64,
    #[serde(rename = "modtime")]
    modified: Option<String>,
    dev_major: u64,
    dev_minor: u64,
    xattrs: Option<BTreeMap<String, String>>,
    pub digest: String,
    pub offset: u64,
    pub end_offset: u64,
    pub inner_offset: u64,
    pub chunk_offset: u64,
    pub chunk_size: u64,
    pub chunk_digest: String,
    pub chunk_type: String,
}

impl TocEntry {
    /// Returns whether the entry is a further chunk of a file.
    pub fn is_piece(&self) -> bool {
        self.kind == "chunk"
    }

    /// Returns the path without leading slashes and dots.
    pub fn path(&self) -> &str {
        let mut path = self.name.as_str();
        while let Some(rest) = path.strip_prefix("./").or_else(|| path.strip_prefix('/')) {
            path = rest;
        }
        path
    }

    /// Returns the member that the entry describes. `number` is the position of the entry, and
    /// `data` the value that the tree stores for a file.
    pub fn member(self, number: u64, data: u64) -> Result<Member, EntryCheck> {
        let kind = match self.kind.as_str() {
            "dir" => Kind::Node(FileType::Directory),
            "reg" => Kind::Node(FileType::Regular),
            "symlink" => Kind::Node(FileType::Symlink),
            "hardlink" => Kind::HardLink,
            "char" => Kind::Node(FileType::CharDevice),
            "block" => Kind::Node(FileType::BlockDevice),
            "fifo" => Kind::Node(FileType::Fifo),
            other => return Err(EntryCheck::Kind(lossy(other.as_bytes()))),
        };
        let is_device = matches!(
            kind,
            Kind::Node(FileType::CharDevice | FileType::BlockDevice)
        );
        let device = if is_device {
            Device {
                major: narrow("devMajor", self.dev_major)?,
                minor: narrow("devMinor", self.dev_minor)?,
            }
        } else {
            Device::default()
        };
        let is_file = kind == Kind::Node(FileType::Regular);
        let size = if is_file { self.size } else { 0 };
        if size > Extent::LAST {
            let (field, value) = ("size", size.to_string());
            return Err(EntryCheck::Range { field, value });
        }
        Ok(Member {
            header: number,
            kind,
            mode: u16::try_from(self.mode & 0o7777).unwrap_or(0),
            uid: narrow("uid", self.uid)?,
            gid: narrow("gid", self.gid)?,
            mtime: time(self.modified.as_deref().unwrap_or_default())?,
            device,
            size,
            data,
            pieces: None,
            xattrs: xattrs(self.xattrs.unwrap_or_default())?,
            left_out: None,
            odd: Vec::new(),
            end: 0,
            path: self.name.into_bytes(),
            link: self.link_name.into_bytes(),
        })
    }
}

fn narrow(field: &'static str, value: u64) -> Result<u32, EntryCheck> {
    u32::try_from(value).map_err(|_| EntryCheck::Range {
        field,
        value: value.to_string(),
    })
}

/// Parses a time of RFC 3339. An empty text is the epoch.
pub fn time(text: &str) -> Result<Timestamp, EntryCheck> {
    const SECOND: i128 = 1_000_000_000;
    let fail = || EntryCheck::Range {
        field: "modtime",
        value: lossy(text.as_bytes()),
    };
    let nanoseconds = match text {
        "" => 0,
        text => {
            let time: jiff::Timestamp = text.parse().map_err(|_| fail())?;
            time.as_nanosecond()
        }
    };
    Ok(Timestamp {
        seconds: i64::try_from(nanoseconds.div_euclid(SECOND)).map_err(|_| fail())?,
        nanoseconds: u32::try_from(nanoseconds.rem_euclid(SECOND)).map_err(|_| fail())?,
    })
}

type Attributes = Vec<(Vec<u8>, Vec<u8>)>;

fn xattrs(attributes: BTreeMap<String, String>) -> Result<Attributes, EntryCheck> {
    if attributes.len() > XATTRS_MAX {
        return Err(EntryCheck::Xattrs);
    }
    let decoded = attributes.into_iter().map(|(name, value)| {
        let fail = || EntryCheck::Range {
            field: "xattrs",
            value: lossy(value.as_bytes()),
        };
        let decoded = STANDARD.decode(&value).map_err(|_| fail())?;
        if can_be_xattr(name.as_bytes(), &decoded) {
            Ok((name.into_bytes(), decoded))
        } else {
            Err(fail())
        }
    });
    decoded.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_that_no_file_can_have_are_refused() {
        let one = |name: &str, len| {
            let value = STANDARD.encode(vec![1; len]);
            xattrs(BTreeMap::from([(name.to_string(), value)]))
        };
        assert_eq!(one("user.a", 65_536).unwrap().len(), 1);
        for (name, len) in [("", 1), ("user.a", 65_537)] {
            let error = one(name, len).unwrap_err();
            assert!(
                matches!(
                    error,
                    EntryCheck::Range {
                        field: "xattrs",
                        ..
                    }
                ),
                "{error}"
            );
        }
    }

    #[test]
    fn times_are_those_of_rfc_3339() {
        let parsed = |text| time(text).ok().map(|time| (time.seconds, time.nanoseconds));
        assert_eq!(parsed(""), Some((0, 0)));
        assert_eq!(parsed("1970-01-01T00:00:01.5Z"), Some((1, 500_000_000)));
        assert_eq!(parsed("1969-12-31T23:59:59.25Z"), Some((-1, 250_000_000)));
        assert_eq!(
            parsed("2024-02-29T01:00:00+01:00"),
            Some((1_709_164_800, 0))
        );
        for text in ["2023-02-29T00:00:00Z", "1", "yesterday"] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }

    #[test]
    fn paths_are_compared_without_what_is_in_front() {
        let path = |name: &str| {
            let name = name.to_string();
            TocEntry {
                name,
                ..TocEntry::default()
            }
            .path()
            .to_string()
        };
        assert_eq!(path("./.prefetch.landmark"), ".prefetch.landmark");
        assert_eq!(path("//./a/b"), "a/b");
        assert_eq!(path("a"), "a");
    }
}
