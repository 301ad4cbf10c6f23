//! Digests, which are also the names of objects.

use std::fmt;

/// The hash algorithm of a digest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    #[default]
    Sha256,
    Sha512,
}

/// An fs-verity digest with blocks of 4 KiB and no salt.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Digest {
    Sha256([u8; 32]),
    Sha512([u8; 64]),
}

impl Digest {
    /// Parses 64 or 128 lower-case hexadecimal digits.
    #[must_use]
    pub fn from_hex(text: &[u8]) -> Option<Self> {
        let sha256 = parse_hex(text).map(Self::Sha256);
        sha256.or_else(|| parse_hex(text).map(Self::Sha512))
    }

    /// Parses an object path such as `ab/cdef...`, with or without a leading slash. Returns `None`
    /// for every other path, because a name in an image must lead only to an object.
    #[must_use]
    pub fn from_object_path(path: &[u8]) -> Option<Self> {
        let path = path.strip_prefix(b"/").unwrap_or(path);
        if path.get(2) != Some(&b'/') {
            return None;
        }
        Self::from_hex(&[&path[..2], &path[3..]].concat())
    }

    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let sha256 = bytes.try_into().map(Self::Sha256);
        sha256.or_else(|_| bytes.try_into().map(Self::Sha512)).ok()
    }

    #[must_use]
    pub const fn bytes(&self) -> &[u8] {
        match self {
            Self::Sha256(bytes) => bytes,
            Self::Sha512(bytes) => bytes,
        }
    }

    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        match self {
            Self::Sha256(_) => Algorithm::Sha256,
            Self::Sha512(_) => Algorithm::Sha512,
        }
    }

    /// Returns the path of the object in a store: `ab/cdef...`.
    #[must_use]
    pub fn object_path(&self) -> String {
        let hex = self.to_string();
        format!("{}/{}", &hex[..2], &hex[2..])
    }
}

fn parse_hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    if text.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
    }
    Some(bytes)
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
        let mut bytes = self.bytes().iter();
        bytes.try_for_each(|byte| write!(f, "{byte:02x}"))
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
        let digests = [Digest::Sha256([0xab; 32]), Digest::Sha512([0xab; 64])];
        for (digest, len) in digests.into_iter().zip([65, 129]) {
            let path = digest.object_path();
            assert_eq!(path.len(), len);
            for path in [format!("/{path}"), path] {
                let parsed = Digest::from_object_path(path.as_bytes());
                assert_eq!(parsed, Some(digest));
            }
        }
        let path = digests[0].object_path();
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
