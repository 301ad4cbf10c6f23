//! Constructed and damaged SIF files.
#![allow(clippy::as_conversions)]

use forerun_io::MemorySource;

use super::{
    BLOB, DESCRIPTOR, EXTRA, MAGIC, MAGIC_AT, PARTITION, PRIMARY_SYSTEM, ROOT_INDEX, Sif,
    VERSION_AT,
};
use crate::Container;
use crate::payload;
use forerun_vfs::Result;

const TABLE: usize = 4096;
const LEN: usize = 70_000;

/// Type, filesystem, kind, offset and size of a descriptor's object.
type Object = (u32, u32, u32, u64, u64);

const SYSTEM: Object = (PARTITION, 1, PRIMARY_SYSTEM, 40_960, 20_480);
const OVERLAY_KIND: u32 = 4;
const OVERLAY: Object = (PARTITION, 2, OVERLAY_KIND, 61_440, 4096);
const RECIPE: Object = (0x4001, 0, 0, 32_768, 40);

/// Creates a file with these descriptors, each after an unused one that claims to be a partition.
fn sif(objects: &[Object]) -> Vec<u8> {
    let mut out = vec![0; LEN];
    let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"#!/usr/bin/env run-singularity\n\0");
    put(MAGIC_AT, MAGIC);
    put(VERSION_AT, b"01\x0002\0");
    put(88, &48_u64.to_le_bytes());
    put(96, &(TABLE as u64).to_le_bytes());
    put(104, &28_080_u64.to_le_bytes());
    for (n, (kind, filesystem, part, offset, size)) in objects.iter().enumerate() {
        let at = TABLE + 2 * n * DESCRIPTOR;
        put(at, &PARTITION.to_le_bytes());
        let at = at + DESCRIPTOR;
        put(at, &kind.to_le_bytes());
        put(at + 4, &[1]);
        put(at + 17, &offset.to_le_bytes());
        put(at + 25, &size.to_le_bytes());
        put(at + 201, &filesystem.to_le_bytes());
        put(at + 205, &part.to_le_bytes());
    }
    out
}

fn found(bytes: Vec<u8>) -> Result<(u64, Option<u64>), String> {
    let found = payload::find(&MemorySource::new(bytes)).map_err(|error| error.to_string())?;
    assert_eq!((found.len(), found[0].container), (1, Container::Sif));
    Ok((found[0].offset, found[0].size))
}

#[test]
fn the_partition_with_the_root_filesystem() {
    let raw = (PARTITION, 4, PRIMARY_SYSTEM, 4096, 10);
    let other = (PARTITION, 1, 1, 50_000, 20);
    let of = |object: Object| Ok((object.3, Some(object.4)));
    for (objects, expected) in [
        (&[SYSTEM][..], of(SYSTEM)),
        (&[RECIPE, OVERLAY, SYSTEM], of(SYSTEM)),
        (&[other], of(other)),
        (&[raw], of(raw)),
    ] {
        assert_eq!(found(sif(objects)), expected, "{objects:?}");
    }
    // More descriptors than one read fetches.
    let mut many = sif(&[]);
    many[88..96].copy_from_slice(&100_u64.to_le_bytes());
    many[104..112].copy_from_slice(&58_500_u64.to_le_bytes());
    let from = sif(&[SYSTEM])[TABLE + DESCRIPTOR..TABLE + 2 * DESCRIPTOR].to_vec();
    let last = TABLE + 99 * DESCRIPTOR;
    many[last..last + DESCRIPTOR].copy_from_slice(&from);
    assert_eq!(found(many), of(SYSTEM));
}

#[test]
fn overlays_belong_to_the_root_and_the_first_is_the_uppermost() {
    let overlay = |offset| (PARTITION, 1, OVERLAY_KIND, offset, 4096);
    for (objects, expected) in [
        (&[SYSTEM][..], &[][..]),
        (&[SYSTEM, RECIPE], &[]),
        (&[OVERLAY, SYSTEM], &[61_440]),
        (&[SYSTEM, overlay(0), overlay(4096)], &[4096, 0]),
        // The only partition is the root.
        (&[(PARTITION, 1, 4, 61_440, 4096)], &[]),
    ] {
        let sif = Sif::read(&MemorySource::new(sif(objects)))
            .unwrap()
            .unwrap();
        let overlays = sif.overlays().unwrap();
        let offsets: Vec<u64> = overlays.iter().map(|it| it.offset).collect();
        assert_eq!(offsets, expected, "{objects:?}");
    }
    // An overlay of another group belongs to another partition.
    let group = |of_overlay: u32| {
        let mut bytes = sif(&[SYSTEM, OVERLAY]);
        for (n, group) in [(1, 1), (3, of_overlay)] {
            let at = TABLE + n * DESCRIPTOR + 9;
            bytes[at..at + 4].copy_from_slice(&(0xf000_0000 | group).to_le_bytes());
        }
        let sif = Sif::read(&MemorySource::new(bytes)).unwrap().unwrap();
        sif.overlays().unwrap().len()
    };
    assert_eq!((group(1), group(2)), (1, 0));
    let outside = sif(&[SYSTEM, overlay(LEN as u64)]);
    let outside = Sif::read(&MemorySource::new(outside)).unwrap().unwrap();
    let error = outside.overlays().unwrap_err().to_string();
    assert!(error.contains("the overlay partition lies at"), "{error}");
}

/// Creates a file with an index and a blob with this digest.
fn container_image(digest: &str, blob: (u64, u64)) -> Vec<u8> {
    let mut bytes = sif(&[(ROOT_INDEX, 0, 0, 40_000, 10), (BLOB, 0, 0, blob.0, blob.1)]);
    let at = TABLE + 3 * DESCRIPTOR + EXTRA;
    bytes[at..at + digest.len()].copy_from_slice(digest.as_bytes());
    bytes
}

#[test]
fn the_objects_of_a_container_image_are_found_by_digest() {
    let digest = format!("sha256:{}", "5a".repeat(32));
    let read = |bytes| Sif::read(&MemorySource::new(bytes)).unwrap().unwrap();
    let found = read(container_image(&digest, (50_000, 7)));
    assert!(found.is_container_image());
    assert_eq!(found.index().unwrap(), Some((40_000, 10)));
    assert_eq!(found.blob(&digest).unwrap(), Some((50_000, 7)));
    assert_eq!(found.blob("sha256:00").unwrap(), None);
    let outside = read(container_image(&digest, (70_000, 1)));
    assert!(outside.blob(&digest).is_err());
    let two = sif(&[(ROOT_INDEX, 0, 0, 0, 10), (ROOT_INDEX, 0, 0, 0, 10)]);
    let error = Sif::read(&MemorySource::new(two)).unwrap_err().to_string();
    assert!(error.ends_with("it has several indexes of a container image"));
}

#[test]
fn what_cannot_be_opened_is_named() {
    let with = |filesystem| (PARTITION, filesystem, PRIMARY_SYSTEM, 40_960, 20_480);
    for (objects, expected) in [
        (
            &[with(2)][..],
            "not supported: a SIF file whose partition is ext3",
        ),
        (
            &[with(3)],
            "not supported: a SIF file whose partition is an archive of an immutable object",
        ),
        (
            &[with(5)],
            "not supported: a SIF file whose partition is an encrypted SquashFS image",
        ),
        (
            &[with(77)],
            "not supported: a SIF file whose partition is of filesystem type 77",
        ),
        (&[RECIPE], "not supported: a SIF file without a partition"),
        (
            &[SYSTEM, SYSTEM],
            "not supported: a SIF file with 2 primary system partitions: an offset tells which is meant",
        ),
        (
            &[OVERLAY, OVERLAY, OVERLAY],
            "not supported: a SIF file with 3 partitions and no primary one: an offset tells which is \
             meant",
        ),
        (
            &[(PARTITION, 1, 2, 40_960, 29_041)],
            "damaged SIF image: offset 0x1249: the partition lies at 0xa000 and is 29041 bytes long; \
             the file has 70000",
        ),
        (
            &[(PARTITION, 1, 2, u64::MAX, 2)],
            "damaged SIF image: offset 0x1249: the partition lies at 0xffffffffffffffff and is 2 \
             bytes long; the file has 70000",
        ),
        (
            &[(PARTITION, 1, 2, 40_960, 0)],
            "damaged SIF image: offset 0x1249: the partition is empty",
        ),
    ] {
        assert_eq!(found(sif(objects)).unwrap_err(), expected);
    }
}

#[test]
fn one_byte_changed_in_the_header() {
    for (at, value, expected) in [
        (
            43,
            b'7',
            "not supported: a SIF file of version 07; this reads 01",
        ),
        (
            88,
            49,
            "damaged SIF image: offset 0x58: 49 descriptors take 28665 bytes; the header leaves room for 28080",
        ),
        (
            95,
            0x80,
            "descriptors of the SIF file exceeds the limit of 65536",
        ),
        (
            98,
            1,
            "damaged SIF image: offset 0x60: the table of descriptors lies at 0x11000 and is 28080 \
             bytes long; the file has 70000",
        ),
        (
            103,
            0xff,
            "damaged SIF image: offset 0x60: the table of descriptors lies at 0xff00000000001000 \
             and is 28080 bytes long; the file has 70000",
        ),
        (
            105,
            0,
            "damaged SIF image: offset 0x58: 48 descriptors take 28080 bytes; the header leaves room for 176",
        ),
        (
            111,
            0xff,
            "damaged SIF image: offset 0x60: the table of descriptors lies at 0x1000 and is \
             18374686479671651760 bytes long; the file has 70000",
        ),
    ] {
        let mut bytes = sif(&[SYSTEM]);
        bytes[at] = value;
        assert_eq!(found(bytes).unwrap_err(), expected, "byte {at}");
    }
    let cut = sif(&[SYSTEM])[..127].to_vec();
    let expected =
        "damaged SIF image: offset 0x0: the file is 127 bytes long; the header takes 128";
    assert_eq!(found(cut).unwrap_err(), expected);
}

#[test]
fn any_byte_may_be_anything() {
    let bytes = sif(&[RECIPE, SYSTEM]);
    let descriptors = TABLE..TABLE + 4 * DESCRIPTOR;
    for at in (32..128).chain(descriptors) {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut mutated = bytes.clone();
            mutated[at] = value;
            for place in payload::find(&MemorySource::new(mutated)).unwrap_or_default() {
                let end = place.offset.checked_add(place.size.unwrap());
                assert!(end.unwrap() <= LEN as u64, "byte {at} as {value}");
            }
        }
    }
}
