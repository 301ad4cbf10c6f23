//! SIF files made by hand and damaged.
#![allow(clippy::as_conversions)]

use forerun_io::MemorySource;

use super::*;
use crate::payload;

const TABLE: usize = 4096;
const LEN: usize = 70_000;

/// Type, filesystem, kind, offset and size of the object of a descriptor.
type Object = (u32, u32, u32, u64, u64);

const SYSTEM: Object = (PARTITION, 1, PRIMARY_SYSTEM, 40_960, 20_480);
const OVERLAY: Object = (PARTITION, 2, 4, 61_440, 4096);
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
    // More descriptors than one read takes.
    let mut many = sif(&[]);
    many[88..96].copy_from_slice(&100_u64.to_le_bytes());
    many[104..112].copy_from_slice(&58_500_u64.to_le_bytes());
    let from = sif(&[SYSTEM])[TABLE + DESCRIPTOR..TABLE + 2 * DESCRIPTOR].to_vec();
    let last = TABLE + 99 * DESCRIPTOR;
    many[last..last + DESCRIPTOR].copy_from_slice(&from);
    assert_eq!(found(many), of(SYSTEM));
}

#[test]
fn an_overlay_beside_the_root_filesystem_is_reported() {
    for (objects, expected) in [
        (&[SYSTEM][..], false),
        (&[SYSTEM, RECIPE], false),
        (&[OVERLAY, SYSTEM], true),
        (&[SYSTEM, OVERLAY], true),
        (&[(PARTITION, 1, 4, 61_440, 4096)], false),
    ] {
        let found = payload::find(&MemorySource::new(sif(objects))).unwrap();
        assert_eq!(found[0].has_overlay, expected, "{objects:?}");
    }
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
