//! The compressor options after the superblock. Reading does not need them, because streams hold
//! their own parameters. `dump` shows them.

use std::fmt;

use forerun_codec::Codec;
use forerun_vfs::Result;
use zerocopy::little_endian::{U16, U32};

use crate::cursor::{Cursor, Table};
use crate::image::Image;
use crate::reference::Reference;
use crate::superblock::HEAD;

/// The options that the writer gave to the compressor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompressorOptions {
    Gzip {
        level: u32,
        /// log2 of the window size.
        window: u16,
        /// Bits of the strategies that were tried.
        strategies: u16,
    },
    Xz {
        /// Dictionary size in bytes.
        dictionary: u32,
        /// Bits of the filters that were tried.
        filters: u32,
    },
    Lzo {
        algorithm: u32,
        /// Compression level, for algorithms that have one.
        level: u32,
    },
    Lz4 {
        /// Version of the stream format.
        version: u32,
        /// Bit 0: high compression.
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

/// Reads the compressor options. Returns `None` if the image has none.
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
