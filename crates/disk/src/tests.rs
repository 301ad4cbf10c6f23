//! Constructed disks, and their mutations.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use forerun_io::{MemorySource, ReadAt, u64_from};
use forerun_vfs::Limits;

use crate::fuzzing::{flash, sparse_image, sum_headers, walk};
use crate::scan::{ScanKind, ScanOptions, scan};
use crate::{Container, Disk, DiskKind, Foreign};

fn open(bytes: &[u8]) -> forerun_vfs::Result<Option<Disk>> {
    Disk::read(&MemorySource::new(bytes), &Limits::default())
}

/// Header fields that point beyond the file, or beyond 2^64.
#[test]
fn absurd_headers_of_sparse_images_are_errors() {
    let header = |file_len: u16, block: u32, blocks: u32, chunks: u32| {
        let mut bytes = 0xed26_ff3a_u32.to_le_bytes().to_vec();
        for half in [1, 0, file_len, 12] {
            bytes.extend_from_slice(&half.to_le_bytes());
        }
        for word in [block, blocks, chunks, 0] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes
    };
    assert!(open(&header(4096, 4096, 0, 0)).is_err());
    let hole = [0xcac3, u32::MAX, 12].map(u32::to_le_bytes).concat();
    // Nearly 2^64 bytes.
    let long = [header(28, 0xffff_fffc, u32::MAX, 1), hole.clone()].concat();
    let error = open(&long).err().unwrap().to_string();
    assert!(error.contains("longer than can be addressed"), "{error}");
    let holes = [header(28, 0xffff_fffc, u32::MAX, 2), hole.clone(), hole].concat();
    assert!(open(&holes).is_err());
}

#[test]
fn a_scan_passes_over_holes() {
    // A hole of nearly 2^62 bytes.
    let mut bytes = 0xed26_ff3a_u32.to_le_bytes().to_vec();
    for half in [1_u16, 0, 28, 12] {
        bytes.extend_from_slice(&half.to_le_bytes());
    }
    let block = 1_u32 << 30;
    for word in [block, u32::MAX, 1, 0] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes.extend_from_slice(&[0xcac3, u32::MAX, 12].map(u32::to_le_bytes).concat());
    let source: Arc<dyn ReadAt> = Arc::new(MemorySource::new(bytes));
    let mut pieces = 0;
    let options = ScanOptions::default();
    let scanned = scan(&source, &[], options, &Arc::default(), &mut |_| pieces += 1);
    let kinds: Vec<_> = scanned
        .unwrap()
        .findings
        .into_iter()
        .map(|it| it.kind)
        .collect();
    let container = ScanKind::Container(Container::AndroidSparse);
    assert_eq!(kinds, [container, ScanKind::Padding]);
    assert_eq!(pieces, 1);
}

/// Each erase block of a damaged flash dump looks like the start of a disk.
#[test]
fn a_scan_opens_no_disk_behind_64_damaged_ones() {
    for (damaged, is_found) in [(63, true), (64, false), (400, false)] {
        let mut block = flash()[..1024].to_vec();
        // From another flash than the sound one, and without a volume header.
        block[27] = 9;
        sum_headers(&mut block);
        block[64..128].fill(0);
        let bytes = [vec![0; 512], block.repeat(damaged), flash()].concat();
        let source: Arc<dyn ReadAt> = Arc::new(MemorySource::new(bytes));
        let observer = Arc::default();
        let options = ScanOptions::default();
        let scanned = scan(&source, &[], options, &observer, &mut |_| {}).unwrap();
        let known = scanned.findings.iter().filter(|it| it.kind.is_known());
        let found: Vec<_> = known.map(|it| it.offset).collect();
        let expected = is_found.then_some(u64_from(512 + damaged * 1024));
        assert_eq!(found, Vec::from_iter(expected), "{damaged} damaged blocks");
    }
}

fn contents(bytes: &[u8]) -> Vec<u8> {
    let disk = open(bytes).unwrap().unwrap();
    let mut all = vec![0; usize::try_from(disk.disk_len()).unwrap()];
    let disk = disk.over(MemorySource::new(bytes));
    disk.read_exact_at(0, &mut all).unwrap();
    all
}

#[test]
fn chunks_are_stored_filled_and_left_out() {
    let image = sparse_image();
    let expected = [&[b'a'; 16][..], b"fillfill", &[0; 8], &[b'b'; 8]].concat();
    assert_eq!(contents(&image), expected);
    let disk = open(&[&image[..], b"behind"].concat()).unwrap().unwrap();
    assert_eq!(
        (disk.kind, disk.stored_len),
        (DiskKind::AndroidSparse, u64_from(image.len()))
    );
}

#[test]
fn damaged_sparse_images_are_refused_with_the_reason() {
    let image = sparse_image();
    for (at, value, expected) in [
        (
            8,
            27,
            "the file header has 27 bytes and the chunk header 12; at least 28 and 12 are needed",
        ),
        (
            10,
            11,
            "the file header has 28 bytes and the chunk header 11; at least 28 and 12 are needed",
        ),
        (
            12,
            0,
            "blocks of 0 bytes: the length must be a multiple of 4 and not 0",
        ),
        (
            12,
            9,
            "blocks of 9 bytes: the length must be a multiple of 4 and not 0",
        ),
        (16, 6, "the chunks have 5 blocks; the header says 6"),
        (16, 4, "the chunks have 5 blocks; the header says 4"),
        (20, 5, "chunk 4 ends at 116; the file is 104 bytes long"),
        (28, 0xc5, "chunk 0 has the unknown type 0xcac5"),
        (36, 29, "chunk 0 takes 29 bytes; its 2 blocks need 28"),
        (32, 1, "chunk 0 takes 28 bytes; its 1 blocks need 20"),
    ] {
        let mut image = image.clone();
        image[at] = value;
        let error = open(&image).unwrap_err().to_string();
        assert!(error.ends_with(expected), "{at}: {error}");
    }
    let error = open(&image[..image.len() - 1]).unwrap_err().to_string();
    assert!(
        error.ends_with("chunk 3 ends at 104; the file is 103 bytes long"),
        "{error}"
    );
}

#[test]
fn volumes_lie_behind_one_another() {
    let flash = flash();
    let disk = open(&flash).unwrap().unwrap();
    let volumes: Vec<_> = disk
        .volumes
        .iter()
        .map(|it| (it.number, &it.name[..], it.offset, it.len, it.is_static))
        .collect();
    let leb = 1024 - 128;
    let expected = [
        (0, &b"fixed"[..], 0, leb + 5, true),
        (2, b"grows", leb + 5, 3 * leb, false),
    ];
    assert_eq!(volumes, expected);
    let all = contents(&flash);
    let leb = usize::try_from(leb).unwrap();
    assert_eq!(all[..leb], vec![b'0'; leb]);
    assert_eq!(&all[leb..leb + 5], b"11111");
    let grows = &all[leb + 5..];
    assert_eq!(grows[..leb], vec![0xff; leb], "not written yet");
    assert_eq!(grows[leb..2 * leb], vec![b'n'; leb], "the newer copy");
    assert_eq!(
        grows[2 * leb..],
        vec![b'o'; leb],
        "the newer copy was cut off"
    );
}

#[test]
fn a_static_volume_with_a_wrong_byte_is_an_error_and_a_dynamic_one_has_no_sums() {
    let mut flash = flash();
    let at = flash.iter().rposition(|&byte| byte == b'0').unwrap();
    flash[at] ^= 1;
    let disk = open(&flash)
        .unwrap()
        .unwrap()
        .over(MemorySource::new(&flash[..]));
    let error = disk.read_exact_at(0, &mut [0; 4]).unwrap_err();
    assert!(error.to_string().contains("has the CRC-32"), "{error}");
    disk.read_exact_at(1024 - 128, &mut [0; 5]).unwrap();
}

#[test]
fn a_missing_block_of_a_static_volume_is_an_error_and_no_zeros() {
    let mut flash = flash();
    let at = flash.iter().position(|&byte| byte == b'0').unwrap() / 1024 * 1024;
    flash[at + 64..at + 1024].fill(0xff);
    let disk = open(&flash)
        .unwrap()
        .unwrap()
        .over(MemorySource::new(&flash[..]));
    let error = disk.read_exact_at(0, &mut [0; 4]).unwrap_err();
    assert!(error.to_string().contains("is not in the file"), "{error}");
}

#[test]
fn the_second_copy_of_the_volume_table_counts_if_the_first_is_damaged() {
    let mut flash = flash();
    flash[128] ^= 1;
    assert_eq!(open(&flash).unwrap().unwrap().volumes.len(), 2);
    flash[1024 + 128] ^= 1;
    let error = open(&flash).unwrap_err().to_string();
    assert!(
        error.ends_with("no undamaged copy of the volume table was found"),
        "{error}"
    );
}

#[test]
fn a_bad_block_and_another_flash_behind_it_are_told_apart() {
    let mut other = flash();
    let mut first = flash();
    // A block without a header, because flash blocks go bad, and an erased one.
    first.extend_from_slice(&[0x5a; 1024]);
    first.extend_from_slice(&[0xff; 1024]);
    for block in other.chunks_mut(1024) {
        block[27] = 9;
    }
    sum_headers(&mut other);
    let len = u64_from(first.len());
    let both = [first, other].concat();
    assert_eq!(open(&both).unwrap().unwrap().stored_len, len - 2048);
}

#[test]
fn mutated_disks_are_read_or_refused() {
    walk(&sparse_image());
    walk(&flash());
    for seed in [sparse_image(), flash()] {
        for at in (0..seed.len()).filter(|at| at % 1024 < 500) {
            for change in [0x01, 0x80, 0xff] {
                let mut bytes = seed.clone();
                bytes[at] ^= change;
                walk(&bytes);
                sum_headers(&mut bytes);
                walk(&bytes);
            }
        }
        for len in 0..seed.len() {
            walk(&seed[..len]);
        }
    }
}

#[test]
fn disks_of_virtual_machines_are_named() {
    let mut vdi = vec![0; 68];
    vdi[64..].copy_from_slice(&[0x7f, 0x10, 0xda, 0xbe]);
    for (bytes, expected) in [
        (&b"QFI\xfb"[..], Some("qcow2")),
        (b"KDMV", Some("vmdk")),
        (&vdi, Some("vdi")),
        (b"conectix", Some("vhd")),
        (b"vhdxfile", Some("vhdx")),
        (b"vhdxfil", None),
        (b"", None),
    ] {
        assert_eq!(Foreign::of(bytes).map(Foreign::name), expected);
    }
}
