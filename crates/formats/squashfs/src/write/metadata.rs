//! Metadata blocks: 8 KiB of inodes, listings or tables, each encoded on its own.
//!
//! A reference holds the encoded offset of a block, which depends on the encoded length of all
//! blocks before it. So each block is encoded in order, as soon as it is full.

use forerun_build::BuildError;
use forerun_codec::{BcjSet, Encoder, Encoding, ZlibStrategies};
use forerun_io::{u16_from, u64_from};

use super::cannot;
use crate::ondisk::{METADATA_BLOCK, METADATA_STORED};

pub const METADATA_BLOCK_SIZE: u32 = 8192;

/// A position in metadata: the offset of an encoded block in its table, and an offset in the
/// decoded block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    pub block: u32,
    pub offset: u16,
}

impl Place {
    /// Returns the position as inodes and xattrs store it.
    pub fn reference(self) -> u64 {
        u64::from(self.block) << 16 | u64::from(self.offset)
    }
}

pub struct MetadataWriter {
    /// `None` if blocks are stored uncompressed.
    encoder: Option<Encoder>,
    /// The block being filled.
    open: Vec<u8>,
    encoded: Vec<u8>,
    /// Encoded blocks that were not taken yet.
    done: Vec<u8>,
    /// Length of the encoded blocks so far.
    len: u64,
    pub starts: Vec<u64>,
}

impl MetadataWriter {
    pub fn new(encoding: &Encoding, compress: bool) -> Result<Self, BuildError> {
        let encoder = if compress {
            Some(metadata_encoder(encoding)?)
        } else {
            None
        };
        Ok(Self {
            encoder,
            open: Vec::with_capacity(METADATA_BLOCK),
            encoded: Vec::new(),
            done: Vec::new(),
            len: 0,
            starts: Vec::new(),
        })
    }

    /// Returns the position of the next byte.
    pub fn place(&self) -> Result<Place, BuildError> {
        match (u32::try_from(self.len), u16::try_from(self.open.len())) {
            (Ok(block), Ok(offset)) => Ok(Place { block, offset }),
            _ => Err(cannot("4 GiB of metadata".to_string())),
        }
    }

    pub fn write(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = METADATA_BLOCK - self.open.len();
            let (now, rest) = bytes.split_at(room.min(bytes.len()));
            self.open.extend_from_slice(now);
            bytes = rest;
            if self.open.len() == METADATA_BLOCK {
                self.end_block();
            }
        }
    }

    /// Returns the blocks encoded since the last call.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.done)
    }

    pub fn finish(&mut self) {
        if !self.open.is_empty() {
            self.end_block();
        }
    }

    fn end_block(&mut self) {
        let shorter = match &mut self.encoder {
            Some(encoder) => encoder.encode(&self.open, &mut self.encoded),
            None => false,
        };
        let (bytes, stored) = if shorter {
            (&self.encoded, 0)
        } else {
            (&self.open, METADATA_STORED)
        };
        self.starts.push(self.len);
        let len = u16_from(u64_from(bytes.len()));
        self.done.extend_from_slice(&(len | stored).to_le_bytes());
        self.done.extend_from_slice(bytes);
        self.len += u64_from(bytes.len()) + 2;
        self.open.clear();
    }
}

/// Creates the encoder of metadata. It does not try several filters or strategies as data does, and
/// its dictionary has the length of a metadata block.
fn metadata_encoder(encoding: &Encoding) -> Result<Encoder, BuildError> {
    let plain = match encoding {
        &Encoding::Zlib {
            level, window_bits, ..
        } => Encoding::Zlib {
            level,
            window_bits,
            strategies: ZlibStrategies::default(),
        },
        &Encoding::Xz { tuning, .. } => Encoding::Xz {
            dictionary: None,
            filters: BcjSet::default(),
            tuning,
        },
        other => other.clone(),
    };
    Encoder::new(&plain, METADATA_BLOCK_SIZE).map_err(|error| cannot(error.to_string()))
}
