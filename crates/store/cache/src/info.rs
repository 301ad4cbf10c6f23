//! Identity, length, chunk size and root of a blob: the text file `info`, written once.

use std::fs;
use std::io::Write;
use std::path::Path;

use crate::geometry::Geometry;
use crate::records::RecordHash;
use crate::{CacheError, Digest, Result};

const HEAD: &str = "forerun cached blob 1";
const LONGEST: usize = 4096;
const LONGEST_LABEL: usize = 1024;
/// Length limit of the file. forerun writes no file as long.
const FILE_LIMIT: u64 = 16 << 10;

/// The contents of the file `info`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Info {
    pub(crate) identity: String,
    pub(crate) label: String,
    pub(crate) geometry: Geometry,
    pub(crate) root: Option<Digest>,
    pub(crate) records: RecordHash,
}

impl Info {
    /// Checks the identity, and converts the label to one line. A blob whose name holds no digest
    /// gets quick hashes as records.
    pub(crate) fn new(
        identity: &str,
        label: &str,
        geometry: Geometry,
        root: Option<Digest>,
    ) -> Result<Self> {
        let refuse = |reason| {
            Err(CacheError::Spec {
                identity: identity.chars().take(100).collect(),
                reason,
            })
        };
        if identity.is_empty() || identity.len() > LONGEST {
            return refuse("an identity has 1 to 4096 bytes");
        }
        if identity.contains(char::is_control) || identity.trim() != identity {
            return refuse("an identity has no control characters and no spaces around it");
        }
        let plain = |c: char| if c.is_control() { '?' } else { c };
        let mut short = String::new();
        for c in label.trim().chars().map(plain) {
            if short.len() + c.len_utf8() > LONGEST_LABEL {
                break;
            }
            short.push(c);
        }
        Ok(Self {
            identity: identity.to_string(),
            label: short.trim_end().to_string(),
            geometry,
            root,
            records: if root.is_some() || identity.parse::<Digest>().is_ok() {
                RecordHash::Sha256
            } else {
                RecordHash::Xxh3
            },
        })
    }

    /// Returns whether bytes cached for `other` are valid for this blob.
    pub(crate) fn is_same_blob(&self, other: &Self) -> bool {
        (&self.identity, self.geometry, self.root) == (&other.identity, other.geometry, other.root)
    }

    pub(crate) fn text(&self) -> String {
        format!(
            "{HEAD}\nidentity: {}\nlabel: {}\nlength: {}\nchunk: {}\nrecords: {}\nroot: {}\n",
            self.identity,
            self.label,
            self.geometry.len(),
            self.geometry.chunk_size(),
            self.records.name(),
            self.root
                .map_or("none".to_string(), |root| root.to_string()),
        )
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        if lines.next() != Some(HEAD) {
            return None;
        }
        let mut field = || lines.next()?.split_once(": ");
        let mut named = |name: &str| field().filter(|found| found.0 == name).map(|found| found.1);
        let (identity, label) = (named("identity")?, named("label")?);
        let (len, chunk) = (
            named("length")?.parse().ok()?,
            named("chunk")?.parse().ok()?,
        );
        let geometry = Geometry::new(len, chunk).ok()?;
        // Files of earlier versions do not name the hash.
        let (mut records, mut last) = (RecordHash::Sha256, field()?);
        if last.0 == "records" {
            records = RecordHash::named(last.1)?;
            last = field()?;
        }
        let root = match last {
            ("root", "none") => None,
            ("root", digest) => Some(digest.parse().ok()?),
            _ => return None,
        };
        let info = Self::new(identity, label, geometry, root).ok()?;
        Some(Self { records, ..info })
    }

    /// Reads the file; `None` if it is missing or malformed.
    pub(crate) fn read(path: &Path) -> Option<Self> {
        use std::io::Read as _;
        let mut text = String::new();
        let file = fs::File::open(path).ok()?;
        file.take(FILE_LIMIT).read_to_string(&mut text).ok()?;
        Self::parse(&text)
    }

    /// Writes the file durably.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let mut file = crate::lock::open_private(path)?;
        file.write_all(self.text().as_bytes())
            .and_then(|()| file.sync_all())
            .map_err(CacheError::io("write", path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_back() {
        let geometry = Geometry::new(12345, 4096).unwrap();
        for root in [None, Some(Digest([7; 32]))] {
            let info = Info::new("https://h/p a|v", " of\nme ", geometry, root).unwrap();
            assert_eq!(info.label, "of?me");
            assert_eq!(Info::parse(&info.text()).unwrap(), info);
            for (at, _) in info.text().char_indices() {
                let cut = Info::parse(&info.text()[..at]);
                assert!(cut.is_none_or(|cut| cut == info), "{at}");
            }
        }
    }

    #[test]
    fn records_are_quick_hashes_where_no_digest_names_the_blob() {
        let geometry = Geometry::new(1, 4096).unwrap();
        let digest = Digest([7; 32]);
        let of = |identity: &str, root| Info::new(identity, "", geometry, root).unwrap();
        assert_eq!(of("https://h/p", None).records, RecordHash::Xxh3);
        let by_digest = of(&digest.to_string(), None);
        assert_eq!(by_digest.records, RecordHash::Sha256);
        let by_table = of("https://h/p", Some(digest));
        assert_eq!(by_table.records, RecordHash::Sha256);
        // Older versions had only one hash, and later another quick one.
        let text = of("https://h/p", None).text();
        for (line, records) in [
            ("", RecordHash::Sha256),
            ("records: blake3\n", RecordHash::Blake3),
        ] {
            let old = Info::parse(&text.replace("records: xxh3\n", line)).unwrap();
            assert_eq!(old.records, records);
            assert!(old.is_same_blob(&of("https://h/p", None)));
        }
        assert_eq!(Info::parse(&text.replace("xxh3", "md5")), None);
    }

    #[test]
    fn identities_that_cannot_be_named_are_refused() {
        let geometry = Geometry::new(1, 4096).unwrap();
        for bad in ["", "a\nb", " a", "a ", "\0", &"x".repeat(4097)] {
            assert!(Info::new(bad, "", geometry, None).is_err(), "{bad:?}");
        }
        let long = Info::new("a", &"\u{e4}".repeat(2000), geometry, None).unwrap();
        assert_eq!(long.label.len(), 1024);
    }
}
