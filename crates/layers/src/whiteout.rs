//! The names and attributes by which a layer hides entries of lower layers.

use forerun_vfs::{Device, FileType, Metadata, check_name};

/// Start of the names of whiteout files. No entry of such a name is ever shown.
const PREFIX: &[u8] = b".wh.";
/// Name of the file that makes its directory opaque.
pub const OPAQUE: &[u8] = b".wh..wh..opq";
/// Starts of the names of overlayfs's own attributes: of a mount by root, and of one with `userxattr`.
const OVERLAY: [&[u8]; 2] = [b"trusted.overlay.", b"user.overlay."];
/// Behind one of these, it marks an attribute of a nested overlayfs: shown without the mark.
const NESTED: &[u8] = b"overlay.";

/// Returns whether an entry of this name is a marker and never shown.
pub fn is_marker(name: &[u8]) -> bool {
    name.starts_with(PREFIX)
}

/// Returns the name that a whiteout file hides; nothing if it is no whiteout, or hides what no entry can be
/// named: it climbs, or has no name behind the prefix.
pub fn hidden(name: &[u8], limit: usize) -> Option<&[u8]> {
    let hidden = name.strip_prefix(PREFIX)?;
    (name != OPAQUE && check_name(hidden, limit).is_ok()).then_some(hidden)
}

/// Returns the name of the whiteout file that hides `name`; nothing if it would be too long for a name.
pub fn hiding(name: &[u8], limit: usize) -> Option<Vec<u8>> {
    let whiteout = [PREFIX, name].concat();
    (whiteout.len() <= limit).then_some(whiteout)
}

/// Returns whether a node is overlayfs's whiteout of its own name: the character device 0:0.
pub fn is_device(metadata: &Metadata) -> bool {
    metadata.kind == FileType::CharDevice && metadata.device == Device::default()
}

/// Overlayfs's own attribute, by its name behind the prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attribute<'n> {
    /// Of the layer itself: not shown.
    Own(&'n [u8]),
    /// Of an overlayfs inside: shown by this prefix and the rest.
    Nested(&'static [u8], &'n [u8]),
}

/// Returns which of overlayfs's attributes this is; nothing for all others.
pub fn attribute(name: &[u8]) -> Option<Attribute<'_>> {
    let prefix = OVERLAY
        .into_iter()
        .find(|prefix| name.starts_with(prefix))?;
    let rest = name.strip_prefix(prefix)?;
    Some(match rest.strip_prefix(NESTED) {
        Some(nested) => Attribute::Nested(prefix, nested),
        None => Attribute::Own(rest),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whiteouts_hide_names_and_nothing_above_them() {
        for (name, expected) in [
            (&b".wh.a"[..], Some(&b"a"[..])),
            (b".wh..a", Some(b".a")),
            (b".wh....", Some(b"...")),
            (b".wh..wh.a", Some(b".wh.a")),
            (b".wh..wh..opq", None),
            (b".wh...", None),
            (b".wh..", None),
            (b".wh.", None),
            (b".wh.a/b", None),
            (b".wh.a\0", None),
            (b".wh", None),
            (b"a", None),
        ] {
            assert_eq!(hidden(name, 255), expected, "{name:?}");
        }
        assert_eq!(hiding(b"a", 255), Some(b".wh.a".to_vec()));
        assert_eq!(hiding(&[b'a'; 252], 255), None);
        assert!(is_marker(b".wh..."));
        assert!(!is_marker(b".whiteout"));
    }

    #[test]
    fn attributes_of_overlayfs_are_told_from_those_of_one_inside() {
        for (name, expected) in [
            (
                &b"trusted.overlay.opaque"[..],
                Some(Attribute::Own(b"opaque")),
            ),
            (b"user.overlay.origin", Some(Attribute::Own(b"origin"))),
            (
                b"trusted.overlay.overlay.opaque",
                Some(Attribute::Nested(b"trusted.overlay.", b"opaque")),
            ),
            (b"user.overlayed", None),
            (b"security.overlay.a", None),
        ] {
            assert_eq!(attribute(name), expected, "{name:?}");
        }
    }
}
