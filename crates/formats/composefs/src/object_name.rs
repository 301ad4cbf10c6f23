//! The names that images have for objects.

use crate::digest::Digest;

/// The name of an object as an image may spell it: `ab/cdef...` with 64 or 128 hexadecimal digits, with
/// or without a slash before it. Objects of OSTree end with `.file`, and the digest in their names is
/// not that of fs-verity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ObjectName {
    digits: Digest,
    ostree: bool,
}

impl ObjectName {
    /// Parses `path` as a name. Returns nothing for every other path: a name in an image must not
    /// lead anywhere but to an object.
    #[must_use]
    pub fn parse(path: &[u8]) -> Option<Self> {
        let (path, ostree) = match path.strip_suffix(b".file") {
            Some(path) => (path, true),
            None => (path, false),
        };
        let digits = Digest::from_object_path(path)?;
        Some(Self { digits, ostree })
    }

    /// Returns its path in a store.
    #[must_use]
    pub fn path(&self) -> String {
        let mut path = self.digits.object_path();
        if self.ostree {
            path.push_str(".file");
        }
        path
    }
}

impl From<Digest> for ObjectName {
    fn from(digits: Digest) -> Self {
        let ostree = false;
        Self { digits, ostree }
    }
}
