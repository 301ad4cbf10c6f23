//! A codec with its options.

use crate::Codec;

/// The codec of a new image's blocks, with its options. The options are those of `mksquashfs`, with
/// its ranges and defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Encoding {
    Zlib {
        /// 1 to 9; 9 is the default.
        level: u8,
        /// log2 of the window, 8 to 15; 15 is the default.
        window_bits: u8,
        /// Strategies to try for each block; the shortest result is kept. Empty means the default
        /// strategy.
        strategies: ZlibStrategies,
    },
    /// LZMA in the `.lzma` container, with the settings of `mksquashfs`: the dictionary is the
    /// block size.
    Lzma,
    Lzo {
        algorithm: LzoAlgorithm,
        /// 1 to 9, for `lzo1x_999` only; 8 is the default.
        level: u8,
    },
    Xz {
        /// Dictionary in bytes: 8 KiB up to the block size, a power of two or the sum of two
        /// neighbouring ones. `None` means the block size.
        dictionary: Option<u32>,
        /// BCJ filters to try for each block, besides no filter; the shortest result is kept.
        filters: BcjSet,
        tuning: LzmaTuning,
    },
    Lz4 {
        /// Whether to use the slow compressor with the better ratio.
        high: bool,
    },
    Zstd {
        /// 1 to 22; 15 is the default.
        level: u8,
    },
}

/// Parameters of LZMA. Each that is not set is that of the preset, which is 6 if not set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LzmaTuning {
    /// 0 to 9.
    pub preset: Option<u8>,
    /// Searches longer for matches.
    pub extreme: bool,
    /// Literal context bits, 0 to 4. Together with `lp` at most 4.
    pub lc: Option<u8>,
    /// Literal position bits, 0 to 4.
    pub lp: Option<u8>,
    /// Position bits, 0 to 4.
    pub pb: Option<u8>,
}

/// An option is out of its range, or not supported by the encoder.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodingError {
    #[error("{codec} {option} {value} is not between {min} and {max}")]
    Range {
        codec: &'static str,
        option: &'static str,
        value: u32,
        min: u32,
        max: u32,
    },
    #[error(
        "xz dictionary of {0} bytes: it must be a power of two, or the sum of two neighbouring ones"
    )]
    Dictionary(u32),
    #[error("lzo {option}: only algorithm lzo1x_999 at level 8 is supported")]
    Lzo { option: String },
    /// The library failed, most often for lack of memory.
    #[error("the {codec} encoder cannot be set up: {reason}")]
    Setup { codec: &'static str, reason: String },
}

/// The algorithms of the LZO1X family, as `mksquashfs` numbers them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LzoAlgorithm {
    Lzo1x1,
    Lzo1x1_11,
    Lzo1x1_12,
    Lzo1x1_15,
    #[default]
    Lzo1x999,
}

macro_rules! set {
    ($(#[$doc:meta])* $set:ident of $(#[$item_doc:meta])* $item:ident
        { $($(#[$one:meta])* $name:ident = $bit:literal,)* }) => {
        $(#[$item_doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $item { $($(#[$one])* $name,)* }

        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $set(u16);

        impl $item {
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Returns the bit for this member in the image's compressor options.
            #[must_use]
            pub const fn bit(self) -> u16 {
                match self { $(Self::$name => $bit,)* }
            }
        }

        impl $set {
            /// Returns the set as bits, as in the image's compressor options.
            #[must_use]
            pub const fn bits(self) -> u16 {
                self.0
            }

            #[must_use]
            pub const fn is_empty(self) -> bool {
                self.0 == 0
            }

            /// Iterates over the members in the order of their bits.
            pub fn iter(self) -> impl Iterator<Item = $item> {
                let members = $item::ALL.iter().copied();
                members.filter(move |item| self.0 & item.bit() != 0)
            }
        }

        impl FromIterator<$item> for $set {
            fn from_iter<I: IntoIterator<Item = $item>>(items: I) -> Self {
                Self(items.into_iter().fold(0, |bits, item| bits | item.bit()))
            }
        }
    };
}

set! {
    ZlibStrategies of
    /// How zlib looks for matches.
    ZlibStrategy {
        Default = 0x01,
        /// For data made by a filter or predictor.
        Filtered = 0x02,
        HuffmanOnly = 0x04,
        /// Only matches at distance one.
        RunLengthEncoded = 0x08,
        /// Only fixed Huffman codes.
        Fixed = 0x10,
    }
}

set! {
    BcjSet of
    /// A filter that makes branch instructions in machine code compress better.
    Bcj {
        /// x86, 32 and 64 bits.
        X86 = 0x01,
        PowerPc = 0x02,
        Ia64 = 0x04,
        Arm = 0x08,
        ArmThumb = 0x10,
        Sparc = 0x20,
        /// Linux 6.12 and later read it.
        Arm64 = 0x40,
        /// Linux 6.12 and later read it.
        RiscV = 0x80,
    }
}

/// Returns an upper bound on the memory of an LZMA encoder: binary trees, hash tables and window
/// take twelve times the dictionary.
pub const fn lzma_memory(dictionary: u64) -> u64 {
    dictionary * 12 + (1 << 20)
}

impl Encoding {
    #[must_use]
    pub const fn codec(&self) -> Codec {
        match self {
            Self::Zlib { .. } => Codec::Zlib,
            Self::Lzma => Codec::Lzma,
            Self::Lzo { .. } => Codec::Lzo,
            Self::Xz { .. } => Codec::Xz,
            Self::Lz4 { .. } => Codec::Lz4,
            Self::Zstd { .. } => Codec::Zstd,
        }
    }

    /// Returns an upper bound on the memory of an [`Encoder`](crate::Encoder) of blocks of
    /// `block_size` bytes, in bytes. Measured for blocks of 128 KiB and of 1 MiB: xz takes 1.9 and
    /// 12.5 MiB, zstd at level 15 2.2 and 16.2 MiB, zlib with all strategies 2.7 and 3.6 MiB.
    #[must_use]
    pub fn memory(&self, block_size: u32) -> u64 {
        let block = u64::from(block_size);
        match self {
            Self::Zlib { strategies, .. } if strategies.is_empty() => 1 << 20,
            Self::Zlib { .. } => 4 << 20,
            Self::Lzma | Self::Xz { .. } => lzma_memory(block),
            Self::Lzo { .. } | Self::Lz4 { .. } => 1 << 20,
            Self::Zstd { level: 0..=4 } => block + (1 << 20),
            Self::Zstd { .. } => block * 17 + (1 << 20),
        }
    }

    /// Returns the default options of `mksquashfs`, or `None` for a codec that it does not have.
    #[must_use]
    pub fn default_of(codec: Codec) -> Option<Self> {
        Some(match codec {
            Codec::Zlib => Self::Zlib {
                level: 9,
                window_bits: 15,
                strategies: ZlibStrategies::default(),
            },
            Codec::Lzma => Self::Lzma,
            Codec::Lzo => Self::Lzo {
                algorithm: LzoAlgorithm::default(),
                level: 8,
            },
            Codec::Xz => Self::Xz {
                dictionary: None,
                filters: BcjSet::default(),
                tuning: LzmaTuning::default(),
            },
            Codec::Lz4 => Self::Lz4 { high: false },
            Codec::Zstd => Self::Zstd { level: 15 },
            Codec::Deflate
            | Codec::DeflateSpan { .. }
            | Codec::Gzip
            | Codec::GzipSpan { .. }
            | Codec::GzipMembers
            | Codec::LzmaBare(_)
            | Codec::Lz4Blocks { .. }
            | Codec::MicroLzma => return None,
        })
    }
}
