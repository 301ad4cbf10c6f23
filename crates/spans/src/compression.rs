/// A compression of a whole file, or of a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compression {
    /// One or several members (RFC 1952).
    Gzip,
    /// One or several frames (RFC 8878).
    Zstd,
    /// One or several streams.
    Xz,
    /// One or several streams.
    Bzip2,
    /// One or several frames, including legacy ones.
    Lz4,
    /// One raw DEFLATE stream (RFC 1951). It has no magic number, so [`Self::of`] never returns it.
    Deflate,
}

impl Compression {
    /// Number of bytes at the start of a file that [`Self::of`] needs.
    pub const PROBE_LEN: usize = 10;

    /// Recognises the compression of a file that starts with `head`.
    #[must_use]
    pub fn of(head: &[u8]) -> Option<Self> {
        match head {
            [0x1f, 0x8b, 8, ..] => Some(Self::Gzip),
            // A frame, or a skippable frame, which other tools put in front.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Self::Zstd),
            [0x04, 0x22, 0x4d, 0x18, ..] | [0x02, 0x21, 0x4c, 0x18, ..] => Some(Self::Lz4),
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Self::Xz),
            // The block size, and the magic number of the first block or of the end.
            [
                b'B',
                b'Z',
                b'h',
                b'1'..=b'9',
                0x31,
                0x41,
                0x59,
                0x26,
                0x53,
                0x59,
                ..,
            ]
            | [
                b'B',
                b'Z',
                b'h',
                b'1'..=b'9',
                0x17,
                0x72,
                0x45,
                0x38,
                0x50,
                0x90,
                ..,
            ] => Some(Self::Bzip2),
            _ => None,
        }
    }

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
            Self::Xz => "xz",
            Self::Bzip2 => "bzip2",
            Self::Lz4 => "lz4",
            Self::Deflate => "deflate",
        }
    }
}
