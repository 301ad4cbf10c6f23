//! The encoding of an undo file, as docs/undo-file.md describes it: all integers are little-endian.
//!
//! Parsers take bytes and return checked values. Reading and writing happen elsewhere.

use std::ops::Range;

use crate::{u32_from, usize_from};

/// The version that is written, and the only one that is read.
pub const VERSION: u32 = 1;
/// Unit in which the volume is saved, and length of the header and of the end slot.
pub const SECTOR: u64 = 512;
pub const END_AT: u64 = SECTOR;
pub const RECORDS_AT: u64 = 2 * SECTOR;
/// Most bytes of the volume in one record.
pub const MOST: u64 = 1 << 20;
/// Most bytes of the volume in one batch.
pub const MOST_PENDING: u64 = 4 << 20;
/// Most bytes of a batch in the file, with a record for each sector.
pub const MOST_BATCH: u64 = MOST_PENDING / SECTOR * (HEAD + SECTOR + SUM + CHECK);
pub const HEAD: u64 = 48;
/// Length of the checksum after a record's body.
pub const CHECK: u64 = 16;
/// Length of the sum of a sector.
pub const SUM: u64 = 8;

const MAGIC: &[u8; 8] = b"FRRNUNDO";
const DONE: &[u8; 8] = b"FRRNDONE";
/// First bytes of each record.
pub const RECORD: &[u8; 8] = b"FRRNRECD";

const SAVED: u32 = 1;
const LAST: u32 = 2;

type Block = [u8; 512];
type Check = [u8; 16];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub volume_len: u64,
    /// Sum of the volume's first sector before the first change.
    pub first: u64,
    /// A number that distinguishes the undo files of one volume.
    pub salt: u64,
}

/// The result of parsing the start of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    Header(Header, Seal),
    NotUndo,
    Version(u32),
    Damaged,
}

/// The seed of the checksums of a file, so that records of another file do not pass as its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal(Check);

/// The contents of the end slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Zeros: the changes are in progress, or were interrupted.
    Open,
    /// The changes are complete, and the file has this length.
    At(u64),
    /// Damage, or an end slot that was being written. All records are complete.
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Number of the batch. The sectors of a batch are written to the volume once the whole batch
    /// is durable.
    pub batch: u64,
    /// Range of bytes of the volume.
    pub range: Range<u64>,
    /// Whether the old bytes follow.
    pub saved: bool,
    /// Whether the batch ends with this record.
    pub last: bool,
}

/// The result of parsing the head of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A head, and the seal with which the checksum of its body begins.
    Head(Head, Seal),
    /// Not a head, or a torn one.
    Nothing,
    /// A head with impossible fields.
    Damaged(&'static str),
}

pub fn sum(sector: &[u8]) -> u64 {
    word(blake3::hash(sector).as_bytes(), 0)
}

impl Header {
    /// Encodes the first 512 bytes of the file.
    pub fn encode(&self) -> (Block, Seal) {
        let mut block = [0; 512];
        put(&mut block, 0, MAGIC);
        put(&mut block, 8, &VERSION.to_le_bytes());
        let numbers = [SECTOR, self.volume_len, self.first, self.salt];
        for (at, number) in (16..).step_by(8).zip(numbers) {
            put(&mut block, at, &number.to_le_bytes());
        }
        let seal = Seal([0; 16]).sealed(&block[..496]);
        put(&mut block, 496, &seal.0);
        (block, seal)
    }

    /// Parses the first 512 bytes of the file.
    pub fn parse(block: &Block) -> Parsed {
        if !block.starts_with(MAGIC) {
            return Parsed::NotUndo;
        }
        let version = word32(block, 8);
        if version != VERSION {
            return Parsed::Version(version);
        }
        let seal = Seal([0; 16]).sealed(&block[..496]);
        if block[496..] != seal.0 || word(block, 16) != SECTOR {
            return Parsed::Damaged;
        }
        let header = Self {
            volume_len: word(block, 24),
            first: word(block, 32),
            salt: word(block, 40),
        };
        Parsed::Header(header, seal)
    }
}

impl End {
    /// Encodes the end slot of a file of `len` bytes.
    pub fn encode(len: u64, seal: &Seal) -> Block {
        let mut block = [0; 512];
        put(&mut block, 0, DONE);
        put(&mut block, 8, &len.to_le_bytes());
        let check = seal.sealed(&block[..496]);
        put(&mut block, 496, &check.0);
        block
    }

    pub fn parse(block: &Block, seal: &Seal) -> Self {
        if block.iter().all(|&byte| byte == 0) {
            return Self::Open;
        }
        if block.starts_with(DONE) && block[496..] == seal.sealed(&block[..496]).0 {
            Self::At(word(block, 8))
        } else {
            Self::Unknown
        }
    }
}

impl Head {
    /// Encodes the head of a record at `position` in the file. Returns it with the seal with which
    /// the checksum of its body begins.
    pub fn encode(&self, position: u64, seal: &Seal) -> ([u8; 48], Seal) {
        let mut bytes = [0; 48];
        // At most `MOST`.
        let len = u32_from(self.range.end - self.range.start);
        let saved = if self.saved { SAVED } else { 0 };
        let last = if self.last { LAST } else { 0 };
        put(&mut bytes, 0, RECORD);
        put(&mut bytes, 8, &self.batch.to_le_bytes());
        put(&mut bytes, 16, &self.range.start.to_le_bytes());
        put(&mut bytes, 24, &len.to_le_bytes());
        put(&mut bytes, 28, &(saved | last).to_le_bytes());
        let seal = seal.at(position).sealed(&bytes[..32]);
        put(&mut bytes, 32, &seal.0);
        (bytes, seal)
    }

    /// Parses the head of a record at `position` of the file, for a volume of `volume_len` bytes.
    pub fn parse(bytes: &[u8; 48], position: u64, seal: &Seal, volume_len: u64) -> Found {
        let seal = seal.at(position).sealed(&bytes[..32]);
        if !bytes.starts_with(RECORD) || bytes[32..] != seal.0 {
            return Found::Nothing;
        }
        let (start, len, flags) = (word(bytes, 16), word32(bytes, 24), word32(bytes, 28));
        let len = u64::from(len);
        let Some(end) = start.checked_add(len).filter(|&end| end <= volume_len) else {
            return Found::Damaged("a range that is not on the volume");
        };
        let is_whole = len.is_multiple_of(SECTOR) || end == volume_len;
        if !start.is_multiple_of(SECTOR) || !is_whole || len == 0 || len > MOST {
            return Found::Damaged("a range that no record may have");
        }
        if flags & !(SAVED | LAST) != 0 {
            return Found::Damaged("unknown flags");
        }
        let head = Self {
            batch: word(bytes, 8),
            range: start..end,
            saved: flags & SAVED != 0,
            last: flags & LAST != 0,
        };
        Found::Head(head, seal)
    }

    /// Returns the number of bytes of the volume.
    pub const fn len(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Returns the length of the body, without the checksum; bounded by [`MOST`].
    pub const fn body_len(&self) -> u64 {
        let saved = if self.saved { self.len() } else { 0 };
        saved + self.len().div_ceil(SECTOR) * SUM
    }
}

impl Seal {
    pub fn check(&self, body: &[u8]) -> Check {
        self.sealed(body).0
    }

    fn at(self, position: u64) -> Self {
        self.sealed(&position.to_le_bytes())
    }

    fn sealed(&self, bytes: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.0).update(bytes);
        let mut check = [0; 16];
        put(&mut check, 0, &hasher.finalize().as_bytes()[..16]);
        Self(check)
    }
}

/// Splits a range of the volume at the boundaries of sectors.
pub fn sectors(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let end = range.end;
    let step = usize_from(SECTOR);
    range
        .step_by(step)
        .map(move |start| start..end.min(start + SECTOR))
}

/// Returns the 64-bit number at `at`, which must lie in `bytes`.
pub fn word(bytes: &[u8], at: usize) -> u64 {
    let found = bytes.get(at..).and_then(<[u8]>::first_chunk);
    found.copied().map_or(0, u64::from_le_bytes)
}

fn word32(bytes: &[u8], at: usize) -> u32 {
    let found = bytes.get(at..).and_then(<[u8]>::first_chunk);
    found.copied().map_or(0, u32::from_le_bytes)
}

fn put(to: &mut [u8], at: usize, bytes: &[u8]) {
    for (to, byte) in to.iter_mut().skip(at).zip(bytes) {
        *to = *byte;
    }
}

const _: () = assert!(MOST_BATCH < 8 << 20 && MOST <= MOST_PENDING);
