use forerun_vfs::{Corrupt, Error};

/// A failed check, with the numbers needed to find the bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Check {
    #[error(
        "the file header has {file} bytes and the chunk header {chunk}; at least 28 and 12 are needed"
    )]
    HeaderLen { file: u16, chunk: u16 },
    #[error("blocks of {len} bytes: the length must be a multiple of 4 and not 0")]
    BlockLen { len: u32 },
    #[error("chunk {chunk} ends at {end}; the file is {len} bytes long")]
    Cut { chunk: u32, end: u64, len: u64 },
    #[error("chunk {chunk} has the unknown type {kind:#06x}")]
    ChunkKind { chunk: u32, kind: u16 },
    #[error("chunk {chunk} takes {found} bytes; its {blocks} blocks need {expected}")]
    ChunkLen {
        chunk: u32,
        found: u32,
        blocks: u32,
        expected: u64,
    },
    #[error("the chunks have {found} blocks; the header says {stated}")]
    Blocks { found: u64, stated: u32 },
    #[error("no second erase block with the same header was found")]
    OneBlock,
    #[error("erase blocks of {peb} bytes cannot have data at {data} and a volume header at {vid}")]
    Geometry { peb: u64, vid: u32, data: u32 },
    #[error(
        "the erase block has data at {data} and a volume header at {vid}, unlike the first erase block"
    )]
    OtherGeometry { vid: u32, data: u32 },
    #[error("no undamaged copy of the volume table was found")]
    NoTable,
    #[error("volume {volume} of the table is not valid: {field} is {value}")]
    Record {
        volume: u32,
        field: &'static str,
        value: u64,
    },
    #[error("block {leb} of volume {volume} lies outside its {most} blocks")]
    Outside { volume: u32, leb: u32, most: u64 },
    #[error("block {leb} of volume {volume} has {found} bytes of data; {expected} are possible")]
    DataLen {
        volume: u32,
        leb: u32,
        found: u32,
        expected: u64,
    },
    #[error("the blocks of volume {volume} state different numbers of blocks: {one} and {other}")]
    Count { volume: u32, one: u32, other: u32 },
    #[error("the disk is longer than can be addressed")]
    TooLong,
}

impl Check {
    pub fn at(self, format: &'static str, offset: u64) -> Error {
        Corrupt::new(format, None, offset, self).into()
    }
}
