//! Digests, which are also the names of objects.

use std::fmt;

/// Bytes of a SHA-256 digest.
pub const DIGEST_LEN: usize = 32;

/// Length of an object's path: two digits, a slash, the other 62.
const PATH_LEN: usize = 2 * DIGEST_LEN + 1;

/// An fs-verity digest: SHA-256, blocks of 4 KiB, no salt.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; DIGEST_LEN]);

impl Digest {
    /// Parses a digest from its 64 lower-case hexadecimal digits.
    #[must_use]
    pub fn from_hex(text: &[u8]) -> Option<Self> {
        if text.len() != 2 * DIGEST_LEN {
            return None;
        }
        let mut bytes = [0; DIGEST_LEN];
        for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
            *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
        }
        Some(Self(bytes))
    }

    /// Returns the digest that `path` names, as in `ab/cdef...`, with or without a slash before it.
    /// Returns nothing for every other path: a name in an image must not lead anywhere but to an
    /// object.
    #[must_use]
    pub fn from_object_path(path: &[u8]) -> Option<Self> {
        let path = path.strip_prefix(b"/").unwrap_or(path);
        if path.len() != PATH_LEN || path.get(2) != Some(&b'/') {
            return None;
        }
        Self::from_hex(&[&path[..2], &path[3..]].concat())
    }

    /// Returns the path of the object in a store: `ab/cdef...`.
    #[must_use]
    pub fn object_path(&self) -> String {
        let hex = self.to_string();
        format!("{}/{}", &hex[..2], &hex[2..])
    }
}

const fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_of_objects_are_taken() {
        let digest = Digest([0xab; DIGEST_LEN]);
        let path = digest.object_path();
        assert_eq!(path.len(), PATH_LEN);
        assert_eq!(Digest::from_object_path(path.as_bytes()), Some(digest));
        let absolute = format!("/{path}");
        assert_eq!(Digest::from_object_path(absolute.as_bytes()), Some(digest));
        let rest = "ab".repeat(31);
        for bad in [
            String::new(),
            "/".to_string(),
            format!("//{path}"),
            format!("ab{rest}"),
            format!("../{rest}"),
            format!("ab/../{}", "a".repeat(59)),
            format!("ab/{}", "a".repeat(61)),
            format!("ab/{}", "a".repeat(63)),
            format!("AB/{rest}"),
            format!("a/b{rest}"),
            format!("{path}/"),
            format!("{path}\0"),
        ] {
            assert_eq!(Digest::from_object_path(bad.as_bytes()), None, "{bad}");
        }
    }
}
