//! Magic numbers of SquashFS and of vendors' variants.

use forerun_vfs::{ByteOrder, Magic};

/// Magic number of a streamed image, which has no superblock at its start.
pub const STREAMED: [u8; 4] = *b"HSQS";

/// Magic numbers that SquashFS images start with. A vendor's magic number does not reliably tell
/// the byte order; the version does.
pub const MAGICS: [Magic; 9] = [
    magic(b"hsqs"),
    magic(b"sqsh"),
    magic(b"shsq"),
    magic(b"qshs"),
    magic(b"hsqt"),
    magic(b"tqsh"),
    magic(b"sqlz"),
    magic(b"zlqs"),
    magic(&STREAMED),
];

const fn magic(bytes: &'static [u8; 4]) -> Magic {
    Magic { offset: 0, bytes }
}

/// Returns whether `head` starts with a known magic number, including those of unsupported
/// variants.
pub fn is_any(head: &[u8]) -> bool {
    MAGICS.iter().any(|magic| head.starts_with(magic.bytes))
}

/// Returns whether the magic number is SquashFS's own and not a vendor's.
pub fn is_standard(head: &[u8]) -> bool {
    head.starts_with(b"hsqs") || head.starts_with(b"sqsh")
}

/// Returns the byte order of numbers. All versions have the version at the same offset, as two
/// 16-bit words.
pub fn order(head: &[u8]) -> ByteOrder {
    match head.get(28..32) {
        Some(&[0, 1..=255, 0, _]) => ByteOrder::Big,
        _ => ByteOrder::Little,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_tells_the_byte_order() {
        for (version, expected) in [
            ([4, 0, 0, 0], ByteOrder::Little),
            ([3, 0, 1, 0], ByteOrder::Little),
            ([0, 4, 0, 0], ByteOrder::Big),
            ([0, 3, 0, 1], ByteOrder::Big),
            ([0, 0, 0, 0], ByteOrder::Little),
        ] {
            let head = [&[0; 28][..], &version].concat();
            assert_eq!(order(&head), expected, "{version:?}");
        }
        assert_eq!(order(b"sqsh"), ByteOrder::Little);
    }

    #[test]
    fn magics_of_vendors() {
        assert!(is_any(b"hsqt") && !is_any(b"hsq") && !is_any(b""));
        assert!(is_standard(b"sqsh") && !is_standard(b"shsq"));
    }
}
