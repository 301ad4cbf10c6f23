//! The compressor options behind the superblock. Reading needs none of them, because streams hold
//! their own parameters. `dump` shows them.

use std::fmt;

use forerun_codec::Codec;
use forerun_vfs::Result;
use zerocopy::little_endian::{U16, U32};

use crate::cursor::{Cursor, Table};
use crate::image::Image;
use crate::reference::Reference;
use crate::superblock::HEAD;

/// How a compressor was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompressorOptions {
    Gzip {
        level: u32,
        /// log2 of the window.
        window: u16,
        /// The strategies that were tried, as bits.
        strategies: u16,
    },
    Xz {
        /// Bytes of the dictionary.
        dictionary: u32,
        /// The filters that were tried, as bits.
        filters: u32,
    },
    Lzo {
        /// The algorithm by its number.
        algorithm: u32,
        /// The level, of the algorithm that has some.
        level: u32,
    },
    /// LZ4.
    Lz4 {
        /// The version of the stream.
        version: u32,
        /// Bit 0 is high compression.
        flags: u32,
    },
    Zstd {
        level: u32,
    },
}

impl fmt::Display for CompressorOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gzip {
                level,
                window,
                strategies,
            } => write!(
                f,
                "level {level} window {window} strategies {strategies:#x}"
            ),
            Self::Xz {
                dictionary,
                filters,
            } => write!(f, "dictionary {dictionary} filters {filters:#x}"),
            Self::Lzo { algorithm, level } => write!(f, "algorithm {algorithm} level {level}"),
            Self::Lz4 { version, flags } => write!(f, "version {version} flags {flags:#x}"),
            Self::Zstd { level } => write!(f, "level {level}"),
        }
    }
}

/// Reads the options of the image's compressor. Returns nothing for one that has none.
pub fn read(image: &Image) -> Result<Option<CompressorOptions>> {
    let table = Table {
        name: "compressor options",
        start: HEAD,
        end: image.superblock.inode_table,
    };
    let mut cursor = Cursor::new(&image.blocks, table, Reference::from_raw(0), None)?;
    let mut word = || cursor.read().map(U32::get);
    Ok(Some(match image.superblock.codec {
        Codec::Zlib => {
            let level = word()?;
            let (window, strategies): (U16, U16) = (cursor.read()?, cursor.read()?);
            let (window, strategies) = (window.get(), strategies.get());
            CompressorOptions::Gzip {
                level,
                window,
                strategies,
            }
        }
        Codec::Xz => CompressorOptions::Xz {
            dictionary: word()?,
            filters: word()?,
        },
        Codec::Lzo => CompressorOptions::Lzo {
            algorithm: word()?,
            level: word()?,
        },
        Codec::Lz4 => CompressorOptions::Lz4 {
            version: word()?,
            flags: word()?,
        },
        Codec::Zstd => CompressorOptions::Zstd { level: word()? },
        _ => return Ok(None),
    }))
}
