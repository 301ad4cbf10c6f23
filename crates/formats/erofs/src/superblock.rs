//! Parses and validates the superblock.
//!
//! The field `blocks` is not checked against the image: it is for `statfs`, and may be 0.

use forerun_io::usize_from;
use forerun_vfs::{Error, Result};
use zerocopy::FromBytes;

use crate::error::Check;
use crate::ondisk::{self, EXTENSION_SLOT, MAGIC, SUPERBLOCK_AT, compat, incompat};

/// Offset of the end of a superblock without extension slots.
pub const LEN: u64 = SUPERBLOCK_AT + 128;

/// Length of the image head that [`Superblock::parse`] needs: [`LEN`] and the one known extension
/// slot.
pub const HEAD: usize = 1168;

/// Names of the incompatible features. A bit with two meanings has both names.
const INCOMPATIBLE: [(u32, &str); 9] = [
    (incompat::ZERO_PADDING, "0padding"),
    (incompat::COMPR_CFGS, "compr_cfgs/big_pcluster"),
    (incompat::CHUNKED_FILE, "chunked_file"),
    (incompat::DEVICE_TABLE, "device_table/compr_head2"),
    (incompat::ZTAILPACKING, "ztailpacking"),
    (incompat::FRAGMENTS, "fragments/dedupe"),
    (incompat::XATTR_PREFIXES, "xattr_prefixes"),
    (incompat::BITS_48, "48bit"),
    (incompat::METABOX, "metabox"),
];
const COMPATIBLE: [(u32, &str); 6] = [
    (compat::SB_CHKSUM, "sb_chksum"),
    (compat::MTIME, "mtime"),
    (compat::XATTR_FILTER, "xattr_filter"),
    (compat::SHARED_EA_IN_METABOX, "shared_ea_in_metabox"),
    (compat::PLAIN_XATTR_PFX, "plain_xattr_pfx"),
    (compat::ISHARE_XATTRS, "ishare_xattrs"),
];
/// The compressors in the order of their `is_compressed` bits, with the minimum length of their
/// configurations. Linux rejects shorter ones, though it reads only the first bytes.
pub const ALGORITHMS: [(&str, usize); 4] = [("lz4", 14), ("lzma", 14), ("deflate", 6), ("zstd", 6)];

/// Most extension slots that end within the first 4096 bytes of the image. Linux and fsck.erofs
/// reject more for every block size.
const MOST_SLOTS: u8 = 184;

/// The superblock, validated on its own and against the length of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    pub checksum: u32,
    pub feature_compat: u32,
    pub feature_incompat: u32,
    pub block_bits: u8,
    pub extension_slots: u8,
    pub root: u64,
    pub inodes: u64,
    pub epoch: i64,
    pub nanoseconds: u32,
    /// Creation time of the image in seconds.
    pub build_time: i64,
    pub blocks: u64,
    pub meta_block: u32,
    pub xattr_block: u32,
    pub uuid: [u8; 16],
    pub label: Vec<u8>,
    /// Bits of [`ALGORITHMS`]; zero if the image does not list its compressors.
    pub algorithms: u16,
    /// As stored: the bits above, or the maximum match distance of LZ4.
    pub is_compressed: u16,
    pub devices: u16,
    pub device_slot: u16,
    pub prefixes: u8,
    pub prefix_start: u32,
    pub packed: Option<u64>,
    pub metabox: Option<u64>,
}

impl Superblock {
    /// Parses `head`, the first [`HEAD`] bytes of the source, or all bytes of a shorter one.
    ///
    /// # Errors
    /// `UnknownFormat`, `Unsupported` for unknown features, `Corrupt`.
    pub fn parse(head: &[u8], source_len: u64) -> Result<Self> {
        let bytes = head.get(usize_from(SUPERBLOCK_AT)..).unwrap_or_default();
        let Ok((raw, _)) = ondisk::Superblock::read_from_prefix(bytes) else {
            return Err(short(source_len, LEN));
        };
        if raw.magic.get() != MAGIC {
            return Err(Error::UnknownFormat {
                expected: Some("erofs".into()),
                found: format!("magic {:#010x} at 1024", raw.magic.get()),
            });
        }
        unsupported(&raw)?;
        check_ranges(&raw, source_len)?;
        Ok(Self::from_raw(&raw, metabox(bytes)))
    }

    /// Builds the value from checked fields. `metabox` is the nid in the first extension slot.
    fn from_raw(raw: &ondisk::Superblock, metabox: Option<u64>) -> Self {
        let feature_incompat = raw.feature_incompat.get();
        let is_48 = feature_incompat & incompat::BITS_48 != 0;
        let (root, high) = match (is_48, raw.rootnid_8b.get()) {
            (true, root) if root != 0 => (root, raw.rootnid_2b.get()),
            _ => (u64::from(raw.rootnid_2b.get()), 0),
        };
        let epoch = raw.epoch.get().cast_signed();
        let later = if is_48 { raw.build_time.get() } else { 0 };
        let has = |bit: u32| feature_incompat & bit != 0;
        let word = raw.is_compressed.get();
        Self {
            checksum: raw.checksum.get(),
            feature_compat: raw.feature_compat.get(),
            feature_incompat,
            block_bits: raw.blkszbits,
            extension_slots: raw.sb_extslots,
            root,
            inodes: raw.inos.get(),
            epoch,
            nanoseconds: raw.fixed_nsec.get(),
            build_time: epoch + i64::from(later),
            blocks: u64::from(raw.blocks.get()) | u64::from(high) << 32,
            meta_block: raw.meta_blkaddr.get(),
            xattr_block: raw.xattr_blkaddr.get(),
            uuid: raw.uuid,
            label: raw
                .volume_name
                .split(|&byte| byte == 0)
                .next()
                .unwrap_or_default()
                .to_vec(),
            algorithms: if has(incompat::COMPR_CFGS) { word } else { 0 },
            is_compressed: word,
            devices: if has(incompat::DEVICE_TABLE) {
                raw.extra_devices.get()
            } else {
                0
            },
            device_slot: raw.devt_slotoff.get(),
            // Like Linux, use the prefixes even if their feature bit is not set.
            prefixes: raw.xattr_prefix_count,
            prefix_start: raw.xattr_prefix_start.get(),
            packed: Some(raw.packed_nid.get()).filter(|&nid| has(incompat::FRAGMENTS) && nid > 0),
            metabox: metabox.filter(|_| has(incompat::METABOX)),
        }
    }

    /// Returns the offset after the superblock. Compressor configurations follow there.
    pub fn end(&self) -> u64 {
        LEN + u64::from(self.extension_slots) * EXTENSION_SLOT
    }

    pub const fn block_size(&self) -> u64 {
        1 << self.block_bits
    }

    /// Returns the offset of a block. Block numbers have at most 48 bits, so no bits are lost.
    pub const fn block_at(&self, block: u64) -> u64 {
        block << self.block_bits
    }

    pub const fn has(&self, bit: u32) -> bool {
        self.feature_incompat & bit != 0
    }

    pub const fn has_compat(&self, bit: u32) -> bool {
        self.feature_compat & bit != 0
    }

    /// Returns false only if the superblock rules out compressed data.
    pub const fn may_be_compressed(&self) -> bool {
        self.is_compressed != 0 || self.has(incompat::ZERO_PADDING)
    }

    pub fn features(&self) -> String {
        let compatible = names(self.feature_compat, &COMPATIBLE);
        let names: Vec<_> = compatible
            .into_iter()
            .chain(names(self.feature_incompat, &INCOMPATIBLE))
            .collect();
        if names.is_empty() {
            "none".into()
        } else {
            names.join(" ")
        }
    }

    pub fn compressors(&self) -> String {
        let names: Vec<_> = (0..)
            .zip(ALGORITHMS)
            .filter(|(bit, _)| self.algorithms & (1 << bit) != 0)
            .map(|(_, (name, _))| name)
            .collect();
        match (names.is_empty(), self.may_be_compressed()) {
            (false, _) => names.join(" "),
            (true, true) => "lz4".into(),
            (true, false) => "none".into(),
        }
    }
}

/// Computes the checksum of `block`, the bytes from the superblock to the end of its block, with
/// the checksum field as zeros. It is CRC-32C without the final inversion.
pub fn checksum(block: &[u8]) -> u32 {
    let (before, rest) = block.split_at(block.len().min(4));
    let crc = crc32c::crc32c(before);
    let crc = crc32c::crc32c_append(crc, &[0; 4]);
    !crc32c::crc32c_append(crc, rest.get(4..).unwrap_or_default())
}

fn metabox(bytes: &[u8]) -> Option<u64> {
    let field = bytes.get(128..136)?;
    let nid = u64::from_le_bytes(field.try_into().ok()?);
    Some(nid)
}

fn names(word: u32, table: &[(u32, &'static str)]) -> Vec<&'static str> {
    let set = table.iter().filter(|(bit, _)| word & bit != 0);
    set.map(|&(_, name)| name).collect()
}

fn short(source_len: u64, need: u64) -> Error {
    let len = source_len;
    Check::ShortSuperblock { len, need }.at(None, SUPERBLOCK_AT)
}

/// Checks the fields that have a valid range, and that the source holds all extension slots.
fn check_ranges(raw: &ondisk::Superblock, source_len: u64) -> Result<()> {
    let bits = raw.blkszbits;
    if !(9..=16).contains(&bits) {
        return Err(Check::BlockSize { bits }.at(None, SUPERBLOCK_AT));
    }
    let slots = raw.sb_extslots;
    if slots > MOST_SLOTS {
        let most = MOST_SLOTS;
        return Err(Check::ExtensionSlots { slots, most }.at(None, SUPERBLOCK_AT));
    }
    let end = LEN + u64::from(slots) * EXTENSION_SLOT;
    if end > source_len {
        return Err(short(source_len, end));
    }
    // Inode times are added to the epoch as 32-bit values.
    let epoch = raw.epoch.get().cast_signed();
    if epoch > i64::MAX - i64::from(u32::MAX) {
        return Err(Check::Epoch { epoch }.at(None, SUPERBLOCK_AT));
    }
    Ok(())
}

/// Returns an error that names the features that this crate does not support.
fn unsupported(raw: &ondisk::Superblock) -> Result<()> {
    let refuse = |what: String| Err(Error::Unsupported(format!("EROFS image with {what}")));
    let unknown = raw.feature_incompat.get() & !incompat::KNOWN;
    if unknown != 0 {
        return refuse(format!("unknown features {unknown:#x} (incompatible)"));
    }
    if raw.dirblkbits != 0 {
        return refuse(format!("directory blocks of 2^{} blocks", raw.dirblkbits));
    }
    let has = |bit: u32| raw.feature_incompat.get() & bit != 0;
    let unknown = raw.is_compressed.get() >> ALGORITHMS.len();
    if has(incompat::COMPR_CFGS) && unknown != 0 {
        return refuse(format!(
            "unknown compressors {:#x}",
            unknown << ALGORITHMS.len()
        ));
    }
    if has(incompat::METABOX) && raw.sb_extslots == 0 {
        return refuse("a metabox, but no superblock extension that locates it".into());
    }
    Ok(())
}

/// Returns whether the magic number is present.
pub fn probe(head: &[u8]) -> bool {
    let at = usize_from(SUPERBLOCK_AT);
    head.get(at..at + 4) == Some(&MAGIC.to_le_bytes()[..])
}

const _: () = assert!(LEN == 1152);
