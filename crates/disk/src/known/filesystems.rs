//! Filesystems and other contents of whole devices, identified by their superblocks.

use forerun_io::{u64_from, usize_from};
use libdeflater::crc32;

use super::{Bytes, Found, joined, made};

/// Bytes without a node after which a JFFS2 filesystem has ended: more than an erase block.
const JFFS2_GAP: u64 = 1 << 20;

pub fn ext(b: &mut Bytes<'_>) -> Option<Found> {
    const AT: u64 = 0x400;
    let [inodes, blocks] = [b.le(AT, 4)?, b.le(AT + 4, 4)?];
    let [first, log] = [b.le(AT + 20, 4)?, b.le(AT + 24, 4)?];
    let [per_group, inodes_per_group] = [b.le(AT + 32, 4)?, b.le(AT + 40, 4)?];
    let [state, errors, minor] = [b.le(AT + 58, 2)?, b.le(AT + 60, 2)?, b.le(AT + 62, 2)?];
    let [creator, revision, group] = [b.le(AT + 72, 4)?, b.le(AT + 76, 4)?, b.le(AT + 90, 2)?];
    if log > 6 || first != u64::from(log == 0) || state > 7 || errors > 3 || minor > 100 {
        return None;
    }
    let block = 1024 << log;
    // A copy of the superblock stores the group that it is in.
    if creator > 4 || revision > 1 || group != 0 || blocks == 0 || inodes == 0 {
        return None;
    }
    let is_group = per_group > 0 && per_group <= block * 8 && inodes_per_group > 0;
    if !is_group || inodes % inodes_per_group != 0 {
        return None;
    }
    let [compatible, incompatible] = [b.le(AT + 92, 4)?, b.le(AT + 96, 4)?];
    let high = if incompatible & 0x80 == 0 {
        0
    } else {
        b.le(AT + 0x150, 4)?
    };
    let name = match (incompatible & 0x2c0 != 0, compatible & 4 != 0) {
        (true, _) => "ext4",
        (false, true) => "ext3",
        (false, false) => "ext2",
    };
    let created = made(b.le(AT + 0x108, 4)?);
    let label = b.text(AT + 0x78, 16);
    let len = (high << 32 | blocks).checked_mul(block)?;
    Some(
        Found::of(len)
            .label(label)
            .details(joined([Some(name.to_string()), created])),
    )
}

pub fn fat(b: &mut Bytes<'_>) -> Option<Found> {
    let jump = b.array::<3>(0)?;
    let [sector, cluster, reserved] = [b.le(11, 2)?, b.le(13, 1)?, b.le(14, 2)?];
    let [tables, media] = [b.le(16, 1)?, b.le(21, 1)?];
    let is_jump = matches!(jump, [0xeb, _, 0x90] | [0xe9, ..]);
    let is_sector = matches!(sector, 512 | 1024 | 2048 | 4096);
    if !is_jump || !is_sector || !cluster.is_power_of_two() || reserved == 0 {
        return None;
    }
    if !matches!(tables, 1 | 2) || !(media == 0xf0 || media >= 0xf8) || !b.has(510, b"\x55\xaa") {
        return None;
    }
    let sectors = match b.le(19, 2)? {
        0 => b.le(32, 4)?,
        sectors => sectors,
    };
    let (name, label) = if b.le(22, 2)? == 0 {
        ("FAT32".to_string(), b.text(0x47, 11))
    } else {
        let name = b.text(0x36, 8);
        (
            String::from_utf8_lossy(&name).into_owned(),
            b.text(0x2b, 11),
        )
    };
    let label = if label == b"NO NAME" {
        Vec::new()
    } else {
        label
    };
    (sectors > reserved).then(|| Found::of(sectors * sector).label(label).details(name))
}

pub fn ntfs(b: &mut Bytes<'_>) -> Option<Found> {
    let [sector, sectors] = [b.le(11, 2)?, b.le(40, 8)?];
    let is_valid = sector.is_power_of_two() && sector >= 256 && b.has(510, b"\x55\xaa");
    // The last sector is a copy of the first.
    let len = sectors.checked_add(1)?.checked_mul(sector)?;
    (is_valid && sectors > 0).then(|| Found::of(len))
}

pub fn bitlocker(b: &mut Bytes<'_>) -> Option<Found> {
    b.has(510, b"\x55\xaa").then(Found::default)
}

pub fn xfs(b: &mut Bytes<'_>) -> Option<Found> {
    let [block, blocks, version] = [b.be(4, 4)?, b.be(8, 8)?, b.be(100, 2)? & 15];
    let is_valid = block.is_power_of_two() && (512..=65536).contains(&block);
    if !is_valid || !(1..=5).contains(&version) {
        return None;
    }
    let label = b.text(108, 12);
    Some(
        Found::of(blocks.checked_mul(block)?)
            .label(label)
            .details(format!("version {version}")),
    )
}

pub fn btrfs(b: &mut Bytes<'_>) -> Option<Found> {
    const AT: u64 = 0x1_0000;
    let [own, sector] = [b.le(AT + 0x30, 8)?, b.le(AT + 0x90, 4)?];
    let is_valid = own == AT && sector.is_power_of_two() && (512..=65536).contains(&sector);
    let len = b.le(AT + 0x70, 8)?;
    let label = b.text(AT + 0x12b, 256);
    is_valid.then(|| Found::of(len).label(label))
}

pub fn f2fs(b: &mut Bytes<'_>) -> Option<Found> {
    const AT: u64 = 0x400;
    let [major, log, blocks] = [b.le(AT + 4, 2)?, b.le(AT + 16, 4)?, b.le(AT + 36, 8)?];
    if major != 1 || !(12..=16).contains(&log) {
        return None;
    }
    let name = b.at(AT + 124, 64)?;
    let units = name
        .chunks_exact(2)
        .map(|unit| u16::from_le_bytes([unit[0], unit[1]]));
    let units: Vec<_> = units.take_while(|&unit| unit != 0).collect();
    Some(Found::of(blocks.checked_mul(1 << log)?).label(String::from_utf16_lossy(&units)))
}

pub fn hfsplus(b: &mut Bytes<'_>) -> Option<Found> {
    let [block, blocks] = [b.be(0x428, 4)?, b.be(0x42c, 4)?];
    let is_valid = block.is_power_of_two() && (512..=1 << 20).contains(&block) && blocks > 0;
    is_valid.then(|| Found::of(blocks * block))
}

pub fn reiserfs(b: &mut Bytes<'_>) -> Option<Found> {
    const AT: u64 = 0x1_0000;
    let [blocks, block] = [b.le(AT, 4)?, b.le(AT + 44, 2)?];
    let is_valid = block.is_power_of_two() && (512..=8192).contains(&block) && blocks > 0;
    let label = b.text(AT + 100, 16);
    is_valid.then(|| Found::of(blocks * block).label(label))
}

pub fn jfs(b: &mut Bytes<'_>) -> Option<Found> {
    const AT: u64 = 0x8000;
    let [version, sectors] = [b.le(AT + 4, 4)?, b.le(AT + 8, 8)?];
    let [block, sector] = [b.le(AT + 16, 4)?, b.le(AT + 24, 4)?];
    let is_valid = matches!(version, 1 | 2) && matches!(block, 512 | 1024 | 2048 | 4096);
    let len = sectors.checked_mul(sector)?;
    (is_valid && sector == 512 && len > 0).then(|| Found::of(len))
}

pub fn minix(b: &mut Bytes<'_>) -> Option<Found> {
    const AT: u64 = 0x400;
    const BLOCK: u64 = 1024;
    let [inodes, zones, inode_map] = [b.le(AT, 2)?, b.le(AT + 2, 2)?, b.le(AT + 4, 2)?];
    let [zone_map, first, log] = [b.le(AT + 6, 2)?, b.le(AT + 8, 2)?, b.le(AT + 10, 2)?];
    let (version, zones, inode) = match b.le(AT + 16, 2)? {
        0x137f | 0x138f => (1, zones, 32),
        _ => (2, b.le(AT + 20, 4)?, 64),
    };
    // The maps have a bit for each inode and zone, and the data begins after the inodes.
    let is_map = inode_map == (inodes + 1).div_ceil(BLOCK * 8) && zone_map >= zones / (BLOCK * 8);
    let is_first = first == 2 + inode_map + zone_map + (inodes * inode).div_ceil(BLOCK);
    let is_valid = inodes > 0 && zones > first && log == 0 && is_map && is_first;
    let details = format!("version {version}");
    is_valid.then(|| Found::of(zones * BLOCK).details(details).of_files())
}

pub fn iso9660(b: &mut Bytes<'_>) -> Option<Found> {
    const AT: u64 = 0x8000;
    let [blocks, big] = [b.le(AT + 80, 4)?, b.be(AT + 84, 4)?];
    let [block, big_block] = [b.le(AT + 128, 2)?, b.be(AT + 130, 2)?];
    let is_primary = b.has(AT, b"\x01CD001\x01") && blocks == big && block == big_block;
    if !is_primary || blocks == 0 || !matches!(block, 512 | 1024 | 2048) {
        return None;
    }
    let label = b.text(AT + 40, 32);
    let date = b.text(AT + 813, 8);
    let date = std::str::from_utf8(&date)
        .ok()
        .filter(|date| date.len() == 8 && date.is_ascii());
    let date = date.map(|date| format!("made {}-{}-{}", &date[..4], &date[4..6], &date[6..]));
    Some(
        Found::of(blocks * block)
            .label(label)
            .details(joined([date])),
    )
}

pub fn udf(b: &mut Bytes<'_>) -> Option<Found> {
    (b.has(0x8000, b"\0") && b.has(0x8006, b"\x01")).then(Found::default)
}

pub fn luks(b: &mut Bytes<'_>) -> Option<Found> {
    match b.be(6, 2)? {
        1 => {
            let cipher = b.text(8, 32);
            let mode = b.text(40, 32);
            let cipher = String::from_utf8_lossy(&cipher).into_owned();
            let mode = String::from_utf8_lossy(&mode).into_owned();
            let payload = b.be(104, 4)? * 512;
            let details =
                format!("version 1, {cipher}-{mode}, encrypted data from {payload:#x} on");
            (payload >= 592).then(|| Found::of(payload).details(details))
        }
        2 => {
            let metadata = b.be(8, 8)?;
            let label = b.text(24, 48);
            let is_valid = metadata.is_power_of_two() && (0x4000..=0x40_0000).contains(&metadata);
            // The second copy of the metadata follows the first.
            let details = "version 2, encrypted data after it";
            is_valid.then(|| Found::of(metadata * 2).label(label).details(details))
        }
        _ => None,
    }
}

pub fn swap(b: &mut Bytes<'_>) -> Option<Found> {
    let [version, last] = [b.le(1024, 4)?, b.le(1028, 4)?];
    let label = b.text(1052, 16);
    (version == 1 && last > 0).then(|| Found::of((last + 1) * 4096).label(label))
}

pub fn lvm(b: &mut Bytes<'_>) -> Option<Found> {
    let is_valid = b.has(0x200, b"LABELONE") && b.has(0x218, b"LVM2 001");
    is_valid.then(Found::default)
}

pub fn raid(b: &mut Bytes<'_>) -> Option<Found> {
    // The superblock stores its own sector number.
    let is_valid = b.le(0x1004, 4)? == 1 && b.le(0x1000 + 144, 8)? == 8;
    let label = b.text(0x1000 + 32, 32);
    is_valid.then(|| Found::default().label(label))
}

pub fn verity(b: &mut Bytes<'_>) -> Option<Found> {
    let [version, kind] = [b.le(8, 4)?, b.le(12, 4)?];
    let [data_block, hash_block, blocks] = [b.le(64, 4)?, b.le(68, 4)?, b.le(72, 8)?];
    let is_block = |len: u64| len.is_power_of_two() && (512..=1 << 19).contains(&len);
    if version != 1 || kind > 1 || !is_block(data_block) || !is_block(hash_block) || blocks == 0 {
        return None;
    }
    let algorithm = b.text(32, 32);
    let digest: u64 = match &algorithm[..] {
        b"sha1" => 20,
        b"sha256" => 32,
        b"sha384" => 48,
        b"sha512" => 64,
        _ => return None,
    };
    let in_block = hash_block / digest.next_power_of_two();
    let (mut level, mut tree) = (blocks, 0_u64);
    while level > 1 {
        level = level.div_ceil(in_block);
        tree = tree.checked_add(level)?;
    }
    let len = tree.max(1).checked_add(1)?.checked_mul(hash_block)?;
    let algorithm = String::from_utf8_lossy(&algorithm).into_owned();
    let data = blocks.checked_mul(data_block)?;
    Some(Found::of(len).details(format!("{algorithm}, of {data} bytes of data")))
}

pub fn android_verity(b: &mut Bytes<'_>) -> Option<Found> {
    let [version, table] = [b.le(4, 4)?, b.le(264, 4)?];
    (version == 0 && (16..0x8000 - 268).contains(&table)).then(|| Found::of(0x8000))
}

pub fn vbmeta(b: &mut Bytes<'_>) -> Option<Found> {
    let [major, minor] = [b.be(4, 4)?, b.be(8, 4)?];
    let [proof, rest] = [b.be(12, 8)?, b.be(20, 8)?];
    let is_len = |len: u64| len < 1 << 20 && len.is_multiple_of(64);
    let is_valid = major == 1 && minor < 100 && is_len(proof) && is_len(rest);
    let tool = b.text(128, 48);
    let tool = String::from_utf8_lossy(&tool).into_owned();
    is_valid.then(|| Found::of(256 + proof + rest).details(tool))
}

pub fn vbmeta_footer(b: &mut Bytes<'_>) -> Option<Found> {
    let [major, minor] = [b.be(4, 4)?, b.be(8, 4)?];
    let [original, meta] = [b.be(12, 8)?, b.be(20, 8)?];
    let is_valid = major == 1 && minor < 100 && original <= meta && b.be(28, 8)? < 1 << 20;
    is_valid.then(|| Found::of(64).details(format!("of an image of {original} bytes")))
}

/// Follows the nodes. Erased blocks may lie between them.
pub fn jffs2(b: &mut Bytes<'_>) -> Option<Found> {
    let is_little = b.has(0, b"\x85\x19");
    let (mut at, mut end, mut nodes) = (0, 0, 0_u64);
    while at - end < JFFS2_GAP {
        if let Some(len) = jffs2_node(b, at, is_little) {
            at = at.checked_add(len.checked_next_multiple_of(4)?)?;
            // The last node may lack its padding.
            end = at.min(b.left());
            nodes += 1;
            continue;
        }
        if nodes == 0 {
            return None;
        }
        let bytes = b.up_to(at, 4096);
        let is_filler = |word: &[u8]| matches!(word, [0xff, ..] | [0, 0, 0, 0]);
        let filler = bytes
            .chunks_exact(4)
            .take_while(|word| is_filler(word))
            .count();
        if filler == 0 {
            break;
        }
        at += u64_from(filler * 4);
    }
    let order = if is_little { "little" } else { "big" };
    Some(Found::of(end).details(format!("{order}-endian, {nodes} nodes")))
}

/// Returns the length of a node whose header has a valid checksum.
fn jffs2_node(b: &mut Bytes<'_>, at: u64, is_little: bool) -> Option<u64> {
    let head = b.array::<12>(at)?;
    let number = |bytes: [u8; 4]| {
        if is_little {
            u32::from_le_bytes(bytes)
        } else {
            u32::from_be_bytes(bytes)
        }
    };
    let magic: &[u8] = if is_little { b"\x85\x19" } else { b"\x19\x85" };
    let [m0, m1, k0, k1, l0, l1, l2, l3, c0, c1, c2, c3] = head;
    let kind = if is_little { [k1, k0] } else { [k0, k1] };
    let is_kind = matches!(kind, [0xe0 | 0x20, 1..=9]);
    if [m0, m1] != magic || !is_kind {
        return None;
    }
    let len = u64::from(number([l0, l1, l2, l3]));
    let is_right = raw_crc32(head.get(..8)?) == number([c0, c1, c2, c3]);
    let fits = len >= 12 && at.checked_add(len)? <= b.left();
    (is_right && fits).then_some(len)
}

/// Returns the CRC-32 that starts with 0 and is not inverted at the end.
fn raw_crc32(bytes: &[u8]) -> u32 {
    let table = |index: u32| {
        (0..8).fold(index, |crc, _| {
            (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg())
        })
    };
    bytes.iter().fold(0, |crc, &byte| {
        table((crc ^ u32::from(byte)) & 0xff) ^ (crc >> 8)
    })
}

pub fn ubifs(b: &mut Bytes<'_>) -> Option<Found> {
    // The superblock is the first node.
    let [crc, len, kind] = [b.le(4, 4)?, b.le(16, 4)?, b.le(20, 1)?];
    if kind != 6 || len != 4096 {
        return None;
    }
    let node = b.at(8, usize_from(len) - 8)?;
    if u64::from(!crc32(node)) != crc {
        return None;
    }
    let [block, blocks, version] = [b.le(36, 4)?, b.le(40, 4)?, b.le(80, 4)?];
    let compressor = match b.le(84, 2)? {
        0 => "none",
        1 => "lzo",
        2 => "zlib",
        3 => "zstd",
        _ => "unknown compressor",
    };
    Some(Found::of(block * blocks).details(format!("{compressor}, version {version}")))
}
