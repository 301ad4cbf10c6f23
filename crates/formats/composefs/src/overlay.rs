//! The extended attributes that control overlayfs, and their escaping.
//!
//! composefs images are written to be the metadata layer of an overlayfs mount. A regular file
//! whose bytes are in the store has `trusted.overlay.redirect`, the path of its object, and
//! `trusted.overlay.metacopy`, the digest the object must have. Attributes of the packed tree that
//! overlayfs would interpret are escaped by one more `overlay.`, which overlayfs removes when it
//! shows them.

use crate::digest::{DIGEST_LEN, Digest};

/// The prefix of names that overlayfs reserves for itself.
const RESERVED: &[u8] = b"trusted.overlay.";
/// The infix that makes a reserved name an ordinary one.
const ESCAPE: &[u8] = b"overlay.";

/// Path of the object with a file's bytes.
pub const REDIRECT: &[u8] = b"trusted.overlay.redirect";
/// Marks a file as having only metadata, and holds the digest of its object.
pub const METACOPY: &[u8] = b"trusted.overlay.metacopy";
/// Marks a directory that hides the entries of lower layers.
#[cfg(feature = "write")]
pub const OPAQUE: &[u8] = b"trusted.overlay.opaque";

/// On a directory that shows whiteouts: for overlayfs on top of the composefs mount, by privilege.
#[cfg(feature = "write")]
pub const WHITEOUTS: [&[u8]; 2] = [
    b"trusted.overlay.overlay.whiteouts",
    b"user.overlay.whiteouts",
];
/// As [`WHITEOUTS`], in the form that Linux 6.8 requires: opaque with the value `x`.
#[cfg(feature = "write")]
pub const HAS_WHITEOUTS: [&[u8]; 2] = [b"trusted.overlay.overlay.opaque", b"user.overlay.opaque"];
/// On the empty file that represents a whiteout.
#[cfg(feature = "write")]
pub const WHITEOUT: [&[u8]; 2] = [
    b"trusted.overlay.overlay.whiteout",
    b"user.overlay.whiteout",
];

/// Escapes `name` for an image.
#[cfg(feature = "write")]
pub fn escape(name: &[u8]) -> Vec<u8> {
    match name.strip_prefix(RESERVED) {
        Some(rest) => [RESERVED, ESCAPE, rest].concat(),
        None => name.to_vec(),
    }
}

/// How an attribute of an image is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown<'n> {
    /// Unchanged.
    Plain(&'n [u8]),
    /// Without one `overlay.`.
    Unescaped(Vec<u8>),
    /// Not at all: it belongs to overlayfs.
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

/// Version 0, the total length, flags (none), and the algorithm (1 is SHA-256).
const METACOPY_HEAD: [u8; 4] = [0, 36, 0, 1];

/// Returns the value of [`METACOPY`] for an object with that digest; empty if none is known.
#[cfg(feature = "write")]
pub fn metacopy(digest: Option<&Digest>) -> Vec<u8> {
    digest.map_or_else(Vec::new, |digest| [&METACOPY_HEAD[..], &digest.0].concat())
}

/// A parsed value of [`METACOPY`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metacopy {
    /// No digest.
    Plain,
    /// The digest of the object.
    Digest(Digest),
    /// An unknown value.
    Unknown,
}

/// Reads a value of [`METACOPY`].
pub fn read_metacopy(value: &[u8]) -> Metacopy {
    // Without a digest the value is empty, or the head alone.
    if value.is_empty() || value == [0, 4, 0, 0] {
        return Metacopy::Plain;
    }
    let digest = value.strip_prefix(&METACOPY_HEAD);
    match digest.and_then(|digest| <[u8; DIGEST_LEN]>::try_from(digest).ok()) {
        Some(digest) => Metacopy::Digest(Digest(digest)),
        None => Metacopy::Unknown,
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
        let digest = Digest([7; DIGEST_LEN]);
        let value = metacopy(Some(&digest));
        assert_eq!(read_metacopy(&value), Metacopy::Digest(digest));
        assert_eq!(read_metacopy(&[]), Metacopy::Plain);
        assert_eq!(read_metacopy(&value[..35]), Metacopy::Unknown);
        let mut other = value;
        other[3] = 2;
        assert_eq!(read_metacopy(&other), Metacopy::Unknown);
    }
}
