//! The magics of SquashFS, and those of vendors with changed formats.

use forerun_vfs::{Error, Magic};

/// The magics that a SquashFS image may start with. The byte order that a vendor's magic suggests is
/// not reliable; the version's is.
pub const MAGICS: [Magic; 8] = [
    magic(b"hsqs"),
    magic(b"sqsh"),
    magic(b"shsq"),
    magic(b"qshs"),
    magic(b"hsqt"),
    magic(b"tqsh"),
    magic(b"sqlz"),
    magic(b"zlqs"),
];

const fn magic(bytes: &'static [u8; 4]) -> Magic {
    Magic { offset: 0, bytes }
}

/// Returns whether the first bytes are those of any SquashFS, so that this crate can report on it.
pub fn is_any(head: &[u8]) -> bool {
    MAGICS.iter().any(|magic| head.starts_with(magic.bytes))
}

/// Returns whether the magic is that of SquashFS itself, not of a vendor's variant.
pub fn is_standard(head: &[u8]) -> bool {
    head.starts_with(b"hsqs") || head.starts_with(b"sqsh")
}

/// Returns why the image cannot be read, if the magic and version already show it.
pub fn refuse(head: &[u8]) -> Option<Error> {
    if !is_any(head) {
        return None;
    }
    // In all versions the version lies at the same place, as two 16-bit words.
    let &[0, major, 0, minor] = head.get(28..32)? else {
        return None;
    };
    (major > 3).then(|| {
        Error::Unsupported(format!(
            "big-endian SquashFS of version {major}.{minor}; this reads 1.x to 3.x in both byte \
             orders, and 4.0 in little-endian"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn big_endian_images_of_4_0_are_refused_by_name() {
        for (major, refused) in [(0, false), (1, false), (3, false), (4, true)] {
            let mut head = [0; 96];
            head[..4].copy_from_slice(b"sqsh");
            (head[29], head[31]) = (major, 1);
            assert_eq!(refuse(&head).is_some(), refused, "{major}");
        }
        assert!(!is_any(b"hsq") && refuse(b"hsqs").is_none() && refuse(b"").is_none());
        assert!(is_standard(b"sqsh") && !is_standard(b"shsq"));
    }
}
