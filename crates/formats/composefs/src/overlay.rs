//! The extended attributes that control overlayfs, and their escaping.
//!
//! composefs images are made to be the metadata layer of an overlayfs mount. A regular file with
//! bytes in the store has `trusted.overlay.redirect`, the path of its object, and
//! `trusted.overlay.metacopy`, the digest of the object. Attributes of the packed tree that
//! overlayfs would interpret are escaped with another `overlay.`, which overlayfs removes when it
//! shows them.

use forerun_vfs::{FileSystem, NodeId, Result};

use crate::digest::Digest;
use crate::error::Check;
use crate::object_name::{ObjectName, Payload};

/// The prefix of names that overlayfs reserves.
const RESERVED: &[u8] = b"trusted.overlay.";
/// The infix that escapes a reserved name.
const ESCAPE: &[u8] = b"overlay.";

/// Path of the object with a file's bytes.
pub const REDIRECT: &[u8] = b"trusted.overlay.redirect";
/// Marks a file that has only metadata, and stores the digest of its object.
pub const METACOPY: &[u8] = b"trusted.overlay.metacopy";
/// Like [`REDIRECT`], for a mount without privileges.
pub const USER_REDIRECT: &[u8] = b"user.overlay.redirect";
/// Marks a directory that hides the entries of lower layers.
#[cfg(feature = "write")]
pub const OPAQUE: &[u8] = b"trusted.overlay.opaque";

/// Marks a directory that shows whiteouts, for a privileged overlayfs on top of the composefs
/// mount.
pub const WHITEOUTS: [&[u8]; 2] = [
    b"trusted.overlay.overlay.whiteouts",
    b"user.overlay.whiteouts",
];
/// Like [`WHITEOUTS`], in the form that Linux 6.8 requires: opaque with the value `x`.
#[cfg(feature = "write")]
pub const HAS_WHITEOUTS: [&[u8]; 2] = [b"trusted.overlay.overlay.opaque", b"user.overlay.opaque"];
/// Marks the empty file that represents a whiteout.
pub const WHITEOUT: [&[u8]; 2] = [
    b"trusted.overlay.overlay.whiteout",
    b"user.overlay.whiteout",
];

#[cfg(feature = "write")]
pub fn escape(name: &[u8]) -> Vec<u8> {
    match name.strip_prefix(RESERVED) {
        Some(rest) => [RESERVED, ESCAPE, rest].concat(),
        None => name.to_vec(),
    }
}

/// The presentation of an image's attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown<'n> {
    Plain(&'n [u8]),
    /// With one `overlay.` removed.
    Unescaped(Vec<u8>),
    /// Not shown, because it belongs to overlayfs.
    Hidden,
}

/// Returns how overlayfs shows a name of its lower layer.
pub fn shown(name: &[u8]) -> Shown<'_> {
    let Some(rest) = name.strip_prefix(RESERVED) else {
        return Shown::Plain(name);
    };
    match rest.strip_prefix(ESCAPE) {
        Some(rest) => Shown::Unescaped([RESERVED, rest].concat()),
        None => Shown::Hidden,
    }
}

/// The attributes of a regular file that locate its contents.
#[derive(Debug, Default)]
pub struct Attributes {
    pub redirect: Option<Vec<u8>>,
    pub metacopy: Option<Vec<u8>>,
}

impl Attributes {
    /// Reads the attributes of `node`.
    pub fn of(metadata: &dyn FileSystem, node: NodeId) -> Result<Self> {
        let mut found = Self::default();
        metadata.xattrs(node, &mut |name, value| match name {
            REDIRECT => found.redirect = Some(value.to_vec()),
            METACOPY => found.metacopy = Some(value.to_vec()),
            _ => {}
        })?;
        Ok(found)
    }

    /// Returns the path of the contents, and the digest that they must have; `None` if the image
    /// itself has the contents. Fails with [`Error::Corrupt`](forerun_vfs::Error::Corrupt) if the
    /// attributes are invalid.
    pub fn payload(&self, node: NodeId) -> Result<Option<(Payload, Option<Digest>)>> {
        let Some(metacopy) = &self.metacopy else {
            return Ok(None);
        };
        let path = self.redirect.as_ref();
        let path = path.ok_or_else(|| Check::NoRedirect.at(node))?;
        let digest = match read_metacopy(metacopy) {
            Metacopy::Digest(digest) => Some(digest),
            Metacopy::Plain => None,
            Metacopy::Unknown => {
                let len = metacopy.len();
                return Err(Check::Metacopy { len }.at(node));
            }
        };
        // overlayfs requires absolute paths for data layers.
        let payload = path.starts_with(b"/").then(|| Payload::parse(path));
        let path = path.clone();
        let payload = payload.flatten();
        let payload = payload.ok_or_else(|| Check::Redirect { path }.at(node))?;
        Ok(Some((payload, digest)))
    }
}

/// Returns the object name in a redirect; fails with
/// [`Error::Corrupt`](forerun_vfs::Error::Corrupt) for any other redirect.
pub fn object_at(path: &[u8], node: NodeId) -> Result<ObjectName> {
    let name = path.starts_with(b"/").then(|| ObjectName::parse(path));
    let path = path.to_vec();
    name.flatten()
        .ok_or_else(|| Check::Redirect { path }.at(node))
}

/// Returns the bytes before a digest in [`METACOPY`]: version 0, the total length, no flags, and
/// the algorithm.
const fn metacopy_head(digest: &Digest) -> [u8; 4] {
    match digest {
        Digest::Sha256(_) => [0, 4 + 32, 0, 1],
        Digest::Sha512(_) => [0, 4 + 64, 0, 2],
    }
}

/// Returns the value of [`METACOPY`] for an object with this digest; empty without a digest.
#[cfg(feature = "write")]
pub fn metacopy(digest: Option<&Digest>) -> Vec<u8> {
    digest.map_or_else(Vec::new, |digest| {
        [&metacopy_head(digest), digest.bytes()].concat()
    })
}

/// A parsed value of [`METACOPY`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metacopy {
    Plain,
    Digest(Digest),
    Unknown,
}

/// Parses a value of [`METACOPY`].
pub fn read_metacopy(value: &[u8]) -> Metacopy {
    // Without a digest, the value is empty or only the head.
    if value.is_empty() || value == [0, 4, 0, 0] {
        return Metacopy::Plain;
    }
    let digest = value
        .split_first_chunk()
        .and_then(|(head, digest)| Some((head, Digest::from_bytes(digest)?)));
    match digest {
        Some((head, digest)) if *head == metacopy_head(&digest) => Metacopy::Digest(digest),
        _ => Metacopy::Unknown,
    }
}

/// Strips the leading slash of a redirect, which starts at the top of a layer.
pub fn below(redirect: &[u8]) -> Vec<u8> {
    match redirect {
        [b'/', rest @ ..] if !rest.is_empty() => rest.to_vec(),
        _ => redirect.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_once_and_back() {
        for name in [
            &b"user.x"[..],
            b"user.overlay.redirect",
            b"trusted.overlay",
            b"trusted.overlay.redirect",
            b"trusted.overlay.overlay.x",
        ] {
            let escaped = escape(name);
            match shown(&escaped) {
                Shown::Plain(back) => assert_eq!(back, name),
                Shown::Unescaped(back) => assert_eq!(back, name),
                Shown::Hidden => assert_eq!(name, b"hidden"),
            }
        }
        assert_eq!(shown(REDIRECT), Shown::Hidden);
        assert_eq!(shown(b"trusted.overlay.anything"), Shown::Hidden);
    }

    #[test]
    fn digests_in_metacopy() {
        let wide = [&[0, 68, 0, 2][..], &[7; 64]].concat();
        assert_eq!(metacopy(Some(&Digest::Sha512([7; 64]))), wide);
        for digest in [Digest::Sha256([7; 32]), Digest::Sha512([7; 64])] {
            let mut value = metacopy(Some(&digest));
            assert_eq!(read_metacopy(&value), Metacopy::Digest(digest));
            let cut = &value[..value.len() - 1];
            assert_eq!(read_metacopy(cut), Metacopy::Unknown);
            value[3] ^= 3;
            assert_eq!(read_metacopy(&value), Metacopy::Unknown);
        }
        assert_eq!(read_metacopy(&[]), Metacopy::Plain);
    }
}
