//! Identity and shape of a blob: the text file `info`, written once.

use std::fs;
use std::io::Write;
use std::path::Path;

use crate::geometry::Geometry;
use crate::{CacheError, Digest, Result};

const HEAD: &str = "forerun cached blob 1";
const LONGEST: usize = 4096;
const LONGEST_LABEL: usize = 1024;
/// Length limit of the file; none that we write is as long.
const FILE_LIMIT: u64 = 16 << 10;

/// Identity, label and shape of a blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Info {
    pub(crate) identity: String,
    pub(crate) label: String,
    pub(crate) geometry: Geometry,
    pub(crate) root: Option<Digest>,
}

impl Info {
    /// Checks the identity and converts the label to one line.
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
        })
    }

    /// Returns whether bytes that are cached for `other` are also bytes of this blob.
    pub(crate) fn is_same_blob(&self, other: &Self) -> bool {
        (&self.identity, self.geometry, self.root) == (&other.identity, other.geometry, other.root)
    }

    pub(crate) fn text(&self) -> String {
        format!(
            "{HEAD}\nidentity: {}\nlabel: {}\nlength: {}\nchunk: {}\nroot: {}\n",
            self.identity,
            self.label,
            self.geometry.len(),
            self.geometry.chunk_size(),
            self.root
                .map_or("none".to_string(), |root| root.to_string()),
        )
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        if lines.next() != Some(HEAD) {
            return None;
        }
        let mut field =
            |name: &str| Some(lines.next()?.strip_prefix(name)?.strip_prefix(':')?.trim());
        let (identity, label) = (field("identity")?, field("label")?);
        let (len, chunk) = (
            field("length")?.parse().ok()?,
            field("chunk")?.parse().ok()?,
        );
        let root = match field("root")? {
            "none" => None,
            digest => Some(digest.parse().ok()?),
        };
        Self::new(identity, label, Geometry::new(len, chunk).ok()?, root).ok()
    }

    /// Reads the file; `None` where it is missing or no such text.
    pub(crate) fn read(path: &Path) -> Option<Self> {
        use std::io::Read as _;
        let mut text = String::new();
        let file = fs::File::open(path).ok()?;
        file.take(FILE_LIMIT).read_to_string(&mut text).ok()?;
        Self::parse(&text)
    }

    /// Writes the file, durably.
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
    fn identities_that_cannot_be_named_are_refused() {
        let geometry = Geometry::new(1, 4096).unwrap();
        for bad in ["", "a\nb", " a", "a ", "\0", &"x".repeat(4097)] {
            assert!(Info::new(bad, "", geometry, None).is_err(), "{bad:?}");
        }
        let long = Info::new("a", &"\u{e4}".repeat(2000), geometry, None).unwrap();
        assert_eq!(long.label.len(), 1024);
    }
}
