//! The superblock, and the structures between it and the first inode.

use forerun_build::BuildError;
use forerun_codec::FillEncoding;
use forerun_io::{u16_from, u64_from};
use forerun_vfs::Timestamp;

use super::cannot;
use super::options::{Compression, ErofsOptions};
use super::place::SLOT;
use super::xattr::prefix_table;

pub const START: u64 = 1024;
const MAGIC: u32 = 0xE0F5_E1E2;
const LEN: usize = 128;
pub const CHECKSUM: std::ops::Range<usize> = 4..8;
/// Length of a device table entry, and the unit of the table's offset.
const DEVICE: u64 = 128;

mod compat {
    pub const CHECKSUM: u32 = 0x01;
    pub const MTIME: u32 = 0x02;
    /// The table of name prefixes is in the image, at the superblock's offset.
    pub const PLAIN_PREFIXES: u32 = 0x10;
}

mod incompat {
    pub const ZERO_PADDING: u32 = 0x01;
    /// Physical clusters of several blocks, and compressor configurations.
    pub const CONFIGURATIONS: u32 = 0x02;
    pub const CHUNKS: u32 = 0x04;
    pub const DEVICES: u32 = 0x08;
    pub const INLINE_EXTENTS: u32 = 0x10;
    pub const FRAGMENTS: u32 = 0x20;
    pub const PREFIXES: u32 = 0x40;
}

pub struct ImageHead {
    configurations: Vec<u8>,
    devices_at: u64,
    prefixes: Vec<u8>,
    prefixes_at: u64,
    pub shared_at: u64,
    block: u64,
}

/// Superblock fields that are known only at the end.
pub struct Facts {
    pub root: u64,
    pub inodes: u64,
    pub epoch: Timestamp,
    pub blocks: u64,
    pub inodes_at: u64,
    pub uuid: [u8; 16],
    pub shared_extents: bool,
    pub packed: Option<u64>,
    /// Lengths of the other devices in bytes.
    pub device_lens: Vec<u64>,
    pub chunks: bool,
}

impl ImageHead {
    pub fn new(options: &ErofsOptions) -> Self {
        let compression = options.compression.as_ref();
        let configurations = compression.filter(|with| is_configured(options, with));
        let configurations =
            configurations.map_or_else(Vec::new, |with| configuration(with, options));
        let mut end = START + u64_from(LEN + configurations.len());
        let devices_at = end.next_multiple_of(DEVICE);
        if options.has_devices() {
            let devices = options.devices.len().max(1);
            end = devices_at + DEVICE * u64_from(devices);
        }
        let prefixes_at = end.next_multiple_of(4);
        let prefixes = prefix_table(&options.xattr_prefixes);
        let shared_at = prefixes_at + u64_from(prefixes.len());
        Self {
            configurations,
            devices_at,
            prefixes,
            prefixes_at,
            shared_at,
            block: options.block_size.into(),
        }
    }

    /// Returns the id of the first shared xattr: its offset from the start of its block, in units
    /// of four bytes.
    pub const fn first_shared(&self) -> u64 {
        self.shared_at % self.block / 4
    }

    /// Returns where inodes can start after `shared` bytes of xattrs.
    pub fn inodes_at(&self, shared: &[u8]) -> u64 {
        (self.shared_at + u64_from(shared.len())).next_multiple_of(SLOT)
    }

    /// Encodes the bytes from the superblock to the shared xattrs, without the checksum.
    pub fn encode(&self, options: &ErofsOptions, facts: &Facts) -> Result<Vec<u8>, BuildError> {
        let (compat, incompat) = self.features(options, facts);
        let blocks =
            u32::try_from(facts.blocks).map_err(|_| cannot(format!("{} blocks", facts.blocks)))?;
        let root = u16::try_from(facts.root)
            .map_err(|_| cannot(format!("a root whose inode has the number {}", facts.root)))?;
        let mut bytes = Vec::with_capacity(4096);
        bytes.extend_from_slice(&MAGIC.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&compat.to_le_bytes());
        bytes.push(u8::try_from(options.block_bits()).unwrap_or(0));
        bytes.push(0);
        bytes.extend_from_slice(&root.to_le_bytes());
        bytes.extend_from_slice(&facts.inodes.to_le_bytes());
        bytes.extend_from_slice(&facts.epoch.seconds.to_le_bytes());
        bytes.extend_from_slice(&facts.epoch.nanoseconds.to_le_bytes());
        bytes.extend_from_slice(&blocks.to_le_bytes());
        bytes.extend_from_slice(&self.block_of(facts.inodes_at).to_le_bytes());
        bytes.extend_from_slice(&self.block_of(self.shared_at).to_le_bytes());
        bytes.extend_from_slice(&facts.uuid);
        let mut label = options.label.clone();
        label.resize(16, 0);
        bytes.extend_from_slice(&label);
        bytes.extend_from_slice(&incompat.to_le_bytes());
        let codecs = if incompat & incompat::CONFIGURATIONS != 0 {
            options
                .compression
                .as_ref()
                .map_or(0, |with| 1 << algorithm(with))
        } else {
            0_u16
        };
        bytes.extend_from_slice(&codecs.to_le_bytes());
        let devices = facts.device_lens.len();
        let devices = u16::try_from(devices).map_err(|_| cannot(format!("{devices} devices")))?;
        let slot = match devices {
            0 => 0,
            _ => u16::try_from(self.devices_at / DEVICE).unwrap_or(0),
        };
        bytes.extend_from_slice(&devices.to_le_bytes());
        bytes.extend_from_slice(&slot.to_le_bytes());
        bytes.push(0);
        bytes.push(u8::try_from(options.xattr_prefixes.len()).unwrap_or(0));
        let prefixes = if self.prefixes.is_empty() {
            0
        } else {
            u32::try_from(self.prefixes_at / 4).unwrap_or(0)
        };
        bytes.extend_from_slice(&prefixes.to_le_bytes());
        bytes.extend_from_slice(&facts.packed.unwrap_or(0).to_le_bytes());
        bytes.resize(LEN, 0);
        bytes.extend_from_slice(&self.configurations);
        self.encode_rest(options, facts, &mut bytes)?;
        Ok(bytes)
    }

    fn encode_rest(
        &self,
        options: &ErofsOptions,
        facts: &Facts,
        bytes: &mut Vec<u8>,
    ) -> Result<(), BuildError> {
        let to = |bytes: &mut Vec<u8>, at: u64| {
            bytes.resize(forerun_io::usize_from(at - START), 0);
        };
        // The devices follow the image in the address space that they share with it.
        let (mut slot, mut at) = (self.devices_at, facts.blocks);
        for (number, len) in facts.device_lens.iter().enumerate() {
            let blocks = len.div_ceil(self.block);
            let field =
                |blocks: u64| u32::try_from(blocks).map_err(|_| cannot(format!("{blocks} blocks")));
            to(bytes, slot);
            let device = options.devices.get(number);
            bytes.extend_from_slice(device.map_or(&[][..], |device| &device.tag));
            to(bytes, slot + 64);
            bytes.extend_from_slice(&field(blocks)?.to_le_bytes());
            bytes.extend_from_slice(&field(at)?.to_le_bytes());
            at += blocks;
            slot += DEVICE;
            to(bytes, slot);
        }
        to(bytes, self.prefixes_at);
        bytes.extend_from_slice(&self.prefixes);
        Ok(())
    }

    fn features(&self, options: &ErofsOptions, facts: &Facts) -> (u32, u32) {
        let with = options.compression.as_ref();
        let prefixes = !options.xattr_prefixes.is_empty();
        let mut compat = compat::CHECKSUM | compat::MTIME;
        if prefixes {
            compat |= compat::PLAIN_PREFIXES;
        }
        let bits = [
            (with.is_some(), incompat::ZERO_PADDING),
            (
                with.is_some_and(|with| is_configured(options, with)),
                incompat::CONFIGURATIONS,
            ),
            (facts.chunks, incompat::CHUNKS),
            (options.has_devices(), incompat::DEVICES),
            (
                with.is_some_and(|with| with.inline_tails),
                incompat::INLINE_EXTENTS,
            ),
            (
                facts.shared_extents || facts.packed.is_some(),
                incompat::FRAGMENTS,
            ),
            (prefixes, incompat::PREFIXES),
        ];
        let set = bits.into_iter().filter(|(set, _)| *set);
        (compat, set.fold(0, |all, (_, bit)| all | bit))
    }

    fn block_of(&self, at: u64) -> u32 {
        u32::try_from(at / self.block).unwrap_or(0)
    }
}

/// Returns whether the image has a compressor configuration. LZ4 with single blocks has none: the
/// oldest readers support nothing else.
fn is_configured(options: &ErofsOptions, with: &Compression) -> bool {
    with.cluster_size > options.block_size || algorithm(with) != 0
}

pub const fn algorithm(with: &Compression) -> u8 {
    match with.encoding {
        FillEncoding::MicroLzma { .. } => 1,
        FillEncoding::Deflate { .. } => 2,
        FillEncoding::Zstd { .. } => 3,
        FillEncoding::Lz4 | FillEncoding::Lz4Hc { .. } => 0,
    }
}

/// Encodes the compressor configuration, with its length first.
fn configuration(with: &Compression, options: &ErofsOptions) -> Vec<u8> {
    let (len, bytes): (u16, Vec<u8>) = match with.encoding {
        FillEncoding::MicroLzma { dictionary, .. } => (14, dictionary.to_le_bytes().to_vec()),
        FillEncoding::Deflate { .. } => (6, vec![15]),
        FillEncoding::Zstd { window_log, .. } => (6, vec![0, window_log.saturating_sub(10)]),
        FillEncoding::Lz4 | FillEncoding::Lz4Hc { .. } => {
            let blocks = with.cluster_size / options.block_size;
            let blocks = u16_from(u64::from(blocks));
            let mut bytes = u16::MAX.to_le_bytes().to_vec();
            bytes.extend_from_slice(&blocks.to_le_bytes());
            (14, bytes)
        }
    };
    let mut record = len.to_le_bytes().to_vec();
    record.extend_from_slice(&bytes);
    record.resize(2 + usize::from(len), 0);
    record
}

/// Computes the superblock's checksum: CRC-32C without the final inversion.
pub fn checksum(bytes: &[u8]) -> u32 {
    !crc32c::crc32c(bytes)
}
