//! The names by which a layer hides entries of lower layers.

use forerun_vfs::{Device, FileType, Metadata, check_name};

/// Prefix of the names of whiteout files. Entries of such a name are never shown.
const PREFIX: &[u8] = b".wh.";
/// Name of the file that makes its directory opaque.
pub const OPAQUE: &[u8] = b".wh..wh..opq";
/// Returns whether an entry of this name is a marker, which is never shown.
pub fn is_marker(name: &[u8]) -> bool {
    name.starts_with(PREFIX)
}

/// Returns the name that a whiteout file hides. Returns `None` if it is not a whiteout, or if no
/// entry can have the hidden name because it is `.`, `..` or empty.
pub fn hidden(name: &[u8], limit: usize) -> Option<&[u8]> {
    let hidden = name.strip_prefix(PREFIX)?;
    (name != OPAQUE && check_name(hidden, limit).is_ok()).then_some(hidden)
}

/// Returns the name of the whiteout file that hides `name`, or `None` if that name would be too
/// long.
pub fn hiding(name: &[u8], limit: usize) -> Option<Vec<u8>> {
    let whiteout = [PREFIX, name].concat();
    (whiteout.len() <= limit).then_some(whiteout)
}

/// Returns whether a node is a whiteout of overlayfs, which hides its own name: the character
/// device 0:0.
pub fn is_device(metadata: &Metadata) -> bool {
    metadata.kind == FileType::CharDevice && metadata.device == Device::default()
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
}
