//! Compression methods (4.4.5).

use forerun_codec::Codec;
use forerun_spans::Compression;

use crate::ondisk::{ENCRYPTED, MASKED, PATCHED};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Stored,
    Deflate,
    Zstd,
    /// An unsupported method, by its number.
    Other(u16),
    /// Encrypted, so only readable with a password.
    Encrypted,
}

impl Method {
    /// Returns the method that the fields of a header name.
    pub const fn of(method: u16, flags: u16) -> Self {
        match method {
            _ if flags & (ENCRYPTED | MASKED) != 0 => Self::Encrypted,
            // AES encryption, as other programs mark it.
            99 => Self::Encrypted,
            _ if flags & PATCHED != 0 => Self::Other(method),
            0 => Self::Stored,
            8 => Self::Deflate,
            93 => Self::Zstd,
            method => Self::Other(method),
        }
    }

    pub fn name(self) -> String {
        let name = match self {
            Self::Stored => "stored",
            Self::Deflate => "deflate",
            Self::Zstd => "zstd",
            Self::Encrypted => "encrypted",
            Self::Other(1) => "shrink",
            Self::Other(2..=5) => "reduce",
            Self::Other(6) => "implode",
            Self::Other(9) => "deflate64",
            Self::Other(12) => "bzip2",
            Self::Other(14) => "lzma",
            Self::Other(95) => "xz",
            Self::Other(96) => "jpeg",
            Self::Other(97) => "wavpack",
            Self::Other(98) => "ppmd",
            Self::Other(method) => return format!("method {method}"),
        };
        name.to_string()
    }

    /// Returns the codec of a member that is one block, and the compression of a member that is
    /// divided into spans. Returns `None` for a member that is not compressed, or cannot be read.
    pub const fn compressed(self) -> Option<(Codec, Compression)> {
        match self {
            Self::Deflate => Some((Codec::Deflate, Compression::Deflate)),
            Self::Zstd => Some((Codec::Zstd, Compression::Zstd)),
            Self::Stored | Self::Other(_) | Self::Encrypted => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods() {
        for (method, flags, expected, name) in [
            (0, 0, Method::Stored, "stored"),
            (8, 8, Method::Deflate, "deflate"),
            (93, 0, Method::Zstd, "zstd"),
            (8, ENCRYPTED, Method::Encrypted, "encrypted"),
            (99, 0, Method::Encrypted, "encrypted"),
            (0, PATCHED, Method::Other(0), "method 0"),
            (12, 0, Method::Other(12), "bzip2"),
            (7, 0, Method::Other(7), "method 7"),
        ] {
            let found = Method::of(method, flags);
            assert_eq!((found, found.name().as_str()), (expected, name), "{method}");
        }
    }
}
