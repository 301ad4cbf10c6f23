//! Entry points for fuzz targets.

use forerun_io::{MemorySource, ReadAt as _, usize_from};
use forerun_vfs::Limits;

use crate::Disk;
use crate::crc::crc;

/// Opens hostile bytes as a disk container. On success, checks its volumes and reads parts of the
/// disk.
pub fn walk(bytes: &[u8]) {
    let mut limits = Limits::default();
    limits.walk_bytes = 1 << 20;
    let source = MemorySource::new(bytes.to_vec());
    let Ok(Some(disk)) = Disk::read(&source, &limits) else {
        return;
    };
    assert!(disk.stored_len <= source.len());
    let len = disk.disk_len();
    for volume in &disk.volumes {
        assert!(
            volume
                .offset
                .checked_add(volume.len)
                .is_some_and(|end| end <= len)
        );
    }
    let disk = disk.over(source);
    for at in [0, len / 3, len / 2, len.saturating_sub(4096)] {
        let mut out = vec![0; usize_from((len - at).min(4096))];
        let _may_be_damaged = disk.read_exact_at(at, &mut out);
    }
}

/// Recomputes the checksums of UBI headers, so that the driver accepts mutated headers. Erase
/// blocks have 1024 bytes, with the volume header at 64 and data at 128. The data of the first two
/// is the volume table.
pub fn sum_headers(bytes: &mut [u8]) {
    for (index, block) in bytes.chunks_mut(1024).enumerate() {
        let (headers, data) = block.split_at_mut(block.len().min(128));
        headers.chunks_exact_mut(64).for_each(sum);
        if index < 2 {
            data.chunks_exact_mut(172).for_each(sum);
        }
    }
}

/// Writes the checksum at the end of a header.
fn sum(header: &mut [u8]) {
    if let Some((body, sum)) = header.split_last_chunk_mut::<4>() {
        *sum = crc(body).to_be_bytes();
    }
}

/// Returns a sparse image with a chunk of each kind.
#[must_use]
pub fn sparse_image() -> Vec<u8> {
    let header = |words: [u16; 4], rest: [u32; 4]| {
        let words = words.into_iter().flat_map(u16::to_le_bytes);
        let rest = rest.into_iter().flat_map(u32::to_le_bytes);
        words.chain(rest).collect::<Vec<u8>>()
    };
    let chunk = |kind: u16, blocks: u32, data: &[u8]| {
        let total = 12 + u32::try_from(data.len()).unwrap_or(0);
        let head = u32::from(kind).to_le_bytes().into_iter();
        let rest = [blocks, total].into_iter().flat_map(u32::to_le_bytes);
        head.chain(rest)
            .chain(data.iter().copied())
            .collect::<Vec<u8>>()
    };
    [
        &[0x3a, 0xff, 0x26, 0xed][..],
        &header([1, 0, 28, 12], [8, 5, 4, 0]),
        &chunk(0xcac1, 2, &[b'a'; 16]),
        &chunk(0xcac2, 1, b"fill"),
        &chunk(0xcac3, 1, b""),
        &chunk(0xcac1, 1, &[b'b'; 8]),
    ]
    .concat()
}

/// Returns a flash dump with a static and a dynamic volume, in the geometry of [`sum_headers`].
#[must_use]
pub fn flash() -> Vec<u8> {
    const LAYOUT: u32 = 0x7fff_efff;
    struct Vid {
        kind: u8,
        copy: u8,
        volume: u32,
        leb: u32,
        size: u32,
        count: u32,
        seq: u8,
    }
    let block = |vid: Vid, data: &[u8], sound: bool| {
        let mut block = vec![0xff; 1024];
        block[..128].fill(0);
        block[..5].copy_from_slice(b"UBI#\x01");
        block[16..28].copy_from_slice(&[0, 0, 0, 64, 0, 0, 0, 128, 0, 0, 0, 7]);
        block[64..69].copy_from_slice(b"UBI!\x01");
        (block[69], block[70], block[64 + 47]) = (vid.kind, vid.copy, vid.seq);
        let sum = crc(data) ^ u32::from(!sound);
        for (at, value) in [
            (72, vid.volume),
            (76, vid.leb),
            (84, vid.size),
            (88, vid.count),
            (96, sum),
        ] {
            block[at..at + 4].copy_from_slice(&value.to_be_bytes());
        }
        block[128..128 + data.len()].copy_from_slice(data);
        block
    };
    let record = |pebs: u32, kind: u8, name: &[u8]| {
        let mut record = vec![0; 172];
        record[..4].copy_from_slice(&pebs.to_be_bytes());
        record[7] = 1;
        record[12] = kind;
        record[15] = u8::try_from(name.len()).unwrap_or(0);
        record[16..16 + name.len()].copy_from_slice(name);
        record
    };
    let table = [
        record(2, 2, b"fixed"),
        record(0, 0, b""),
        record(3, 1, b"grows"),
        record(0, 0, b""),
        record(0, 0, b""),
    ]
    .concat();
    let leb = 1024 - 128;
    let vid = |kind, volume, leb, size, count, (copy, seq)| Vid {
        kind,
        copy,
        volume,
        leb,
        size,
        count,
        seq,
    };
    let dynamic = |leb, copy| vid(1, 2, leb, 896, 0, copy);
    let mut flash = [
        block(vid(1, LAYOUT, 0, 0, 0, (0, 1)), &table, true),
        block(vid(1, LAYOUT, 1, 0, 0, (0, 2)), &table, true),
        block(dynamic(2, (0, 3)), &vec![b'o'; leb], true),
        block(dynamic(1, (1, 9)), &vec![b'n'; leb], true),
        block(dynamic(1, (0, 4)), &vec![b'x'; leb], true),
        block(dynamic(2, (1, 8)), &vec![b'c'; leb], false),
        block(vid(2, 0, 1, 5, 2, (0, 5)), b"11111", true),
        block(vid(2, 0, 0, 896, 2, (0, 6)), &vec![b'0'; leb], true),
    ]
    .concat();
    sum_headers(&mut flash);
    flash
}
