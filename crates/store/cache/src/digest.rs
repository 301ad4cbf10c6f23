//! SHA-256 digests as values.

use std::str::FromStr;
use std::{fmt, io};

use forerun_io::{ReadAt, u64_from, usize_from};
use sha2::{Digest as _, Sha256};

const STEP: usize = 1 << 20;

/// A SHA-256 digest. Its text form is OCI's: `sha256:` and 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub [u8; 32]);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a digest: sha256: and 64 hexadecimal digits")]
pub struct NoDigest {
    text: String,
}

impl Digest {
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Computes the digest of all bytes of a source, read in order.
    ///
    /// # Errors
    /// Any error of the source.
    pub fn of_source(source: &dyn ReadAt) -> io::Result<Self> {
        let mut hasher = Sha256::new();
        let mut buffer = vec![0; STEP];
        let mut at = 0;
        while at < source.len() {
            let left = usize_from(source.len() - at);
            let len = left.min(STEP);
            let bytes = buffer.get_mut(..len).unwrap_or_default();
            source.read_exact_at(at, bytes)?;
            hasher.update(bytes);
            at += u64_from(len);
        }
        Ok(Self(hasher.finalize().into()))
    }

    /// Returns the 64 hexadecimal digits in lower case.
    #[must_use]
    pub fn hex(&self) -> String {
        use fmt::Write as _;
        let mut text = String::with_capacity(64);
        for byte in self.0 {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        text
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = NoDigest;

    fn from_str(text: &str) -> Result<Self, NoDigest> {
        let none = || NoDigest {
            text: text.chars().take(100).collect(),
        };
        let hex = text.strip_prefix("sha256:").ok_or_else(none)?.as_bytes();
        let mut digest = [0; 32];
        let (pairs, rest) = hex.as_chunks::<2>();
        if pairs.len() != digest.len() || !rest.is_empty() {
            return Err(none());
        }
        for (byte, &[high, low]) in digest.iter_mut().zip(pairs) {
            let (high, low) = (nibble(high), nibble(low));
            *byte = high
                .zip(low)
                .map(|(high, low)| high << 4 | low)
                .ok_or_else(none)?;
        }
        Ok(Self(digest))
    }
}

/// Parses a hexadecimal digit in lower case, the only form that OCI allows.
const fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn texts_come_back_and_others_are_refused() {
        let digest = Digest::of(b"abc");
        let text = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest.to_string(), text);
        assert_eq!(text.parse::<Digest>().unwrap(), digest);
        for bad in [
            "",
            "sha256:",
            "ba7816bf",
            &text[..70],
            &format!("{text}0"),
            &text.to_uppercase(),
            &text.replace("sha256:", "sha512:"),
        ] {
            assert!(bad.parse::<Digest>().is_err(), "{bad}");
        }
    }
}
