//! The paths that images give for the contents of their files.

use crate::digest::Digest;

/// The name of an object in the form that images use: `ab/cdef...` with 64 or 128 hexadecimal
/// digits, with or without a leading slash. Objects of OSTree end with `.file`, and their names are
/// not fs-verity digests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ObjectName {
    digits: Digest,
    ostree: bool,
}

impl ObjectName {
    /// Parses `path` as a name. Returns `None` for every other path, because a name in an image
    /// must lead only to an object.
    #[must_use]
    pub fn parse(path: &[u8]) -> Option<Self> {
        let (path, ostree) = match path.strip_suffix(b".file") {
            Some(path) => (path, true),
            None => (path, false),
        };
        let digits = Digest::from_object_path(path)?;
        Some(Self { digits, ostree })
    }

    /// Returns the object's path in a store.
    #[must_use]
    pub fn path(&self) -> String {
        let mut path = self.digits.object_path();
        if self.ostree {
            path.push_str(".file");
        }
        path
    }
}

/// The path of a redirect.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Payload {
    Object(ObjectName),
    /// A path below a base directory: not empty, no leading slash, no `.`, `..` or NUL bytes.
    Path(Vec<u8>),
}

impl Payload {
    /// Parses a redirect, with its leading slashes. Returns `None` for a path that could leave the
    /// directory.
    #[must_use]
    pub fn parse(path: &[u8]) -> Option<Self> {
        if let Some(name) = ObjectName::parse(path) {
            return Some(Self::Object(name));
        }
        let start = path.iter().position(|&byte| byte != b'/')?;
        let path = &path[start..];
        let mut names = path.split(|&byte| byte == b'/');
        let stays = names.all(|name| name != b"." && name != b".." && !name.contains(&0));
        stays.then(|| Self::Path(path.to_vec()))
    }

    /// Returns the path in a store or below a base directory.
    #[must_use]
    pub fn path(&self) -> Vec<u8> {
        match self {
            Self::Object(name) => name.path().into_bytes(),
            Self::Path(path) => path.clone(),
        }
    }
}

impl From<Digest> for ObjectName {
    fn from(digits: Digest) -> Self {
        let ostree = false;
        Self { digits, ostree }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_stays_below_its_directory() {
        for (path, expected) in [
            (&b"/etc/passwd"[..], &b"etc/passwd"[..]),
            (b"//a//b", b"a//b"),
            (b"/..a/.b/c..", b"..a/.b/c.."),
            (b"/\xff", b"\xff"),
        ] {
            let payload = Payload::parse(path).unwrap();
            assert_eq!(payload, Payload::Path(expected.to_vec()));
        }
        for path in [
            &b""[..],
            b"/",
            b"//",
            b"/..",
            b"/../a",
            b"/a/../../b",
            b"/a/..",
            b"/.",
            b"/a/./b",
            b"/a\0b",
        ] {
            assert_eq!(Payload::parse(path), None, "{path:?}");
        }
        let name = Digest::Sha512([0xab; 64]).object_path();
        let payload = Payload::parse(format!("/{name}").as_bytes()).unwrap();
        assert!(matches!(payload, Payload::Object(_)));
        assert_eq!(payload.path(), name.as_bytes());
    }
}
