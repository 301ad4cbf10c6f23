//! Compressed images by mkfs.erofs 1.9.3, which is newer than Debian's: every codec, index and way
//! of storing tails. They hold the same files, in blocks of 512 bytes to keep them small.
//!
//! | image | `-b512 --all-root` and |
//! |---|---|
//! | lz4-compact | `-zlz4hc` |
//! | lz4-full | `-zlz4hc -Elegacy-compress` |
//! | lz4-unpadded | lz4-full, changed as below |
//! | lz4-big | `-zlz4hc -C4096` |
//! | lz4-inline-full | `-zlz4hc -Elegacy-compress,ztailpacking` |
//! | lzma-inline | `-zlzma -C2048 -Eztailpacking` |
//! | deflate-inline | `-zdeflate,9 -C2048 -Eztailpacking` |
//! | zstd-inline | `-zzstd,19 -C2048 -Eztailpacking` |
//! | lz4-dedupe | `-zlz4hc -Ededupe` |
//! | lzma-dedupe, deflate-dedupe, zstd-dedupe | `-zCODEC -Ededupe` |
//! | lzma-fragments | `-zlzma -C1024 -Efragments,dedupe` |
//! | lz4-all-fragments | `-zlz4hc -C4096 -Eall-fragments` |
//! | lz4-extents | `-zlz4hc -E48bit` |
//! | zstd-extents | `-zzstd,19 -C4096 -E48bit` |
//! | deflate-extents-dedupe | `-zdeflate,9 -C1024 -E48bit,dedupe` |
//! | lzma-extents-fragments | `-zlzma -C1024 -E48bit,fragments` |
//! | zstd-metabox | `-zzstd,19 -C4096 -m4096 -E48bit` |
//! | lzma-4k | `-b4096 -zlzma -C65536 -Eztailpacking,fragments` |
//!
//! Current versions of mkfs.erofs always put zeros before LZ4 streams. In lz4-unpadded each stream
//! was moved to the start of its block by hand, and the feature bits were cleared. Linux reads it.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use forerun_codec::Codec;
use forerun_erofs::Erofs;
use forerun_io::{Limits, MemorySource};
use forerun_testkit::conformance::check_filesystem;
use forerun_testkit::tree::read_extents;
use forerun_vfs::{
    DecodedLen, Error, Extent, FileSystem, FileType, NodeId, OpenWith, Place, Result, Walk,
};

fn goldens() -> Vec<(String, Vec<u8>)> {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/golden/zmap");
    let mut images: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "img"))
        .map(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            (name, std::fs::read(path).unwrap())
        })
        .collect();
    images.sort();
    assert_eq!(images.len(), 20);
    images
}

/// Name, length and BLAKE3 digest of every file.
const CONTENTS: &str = include_str!("golden/zmap/contents");

fn open(image: Vec<u8>) -> Result<Erofs> {
    Erofs::open(OpenWith::new(Arc::new(MemorySource::new(image))))
}

fn files(fs: &dyn FileSystem) -> Vec<(String, NodeId, u64)> {
    let mut files = Vec::new();
    for entry in Walk::new(fs, fs.root(), &Limits::default()) {
        let Ok(entry) = entry else { break };
        if let Ok(metadata) = entry.metadata
            && metadata.kind == FileType::Regular
        {
            let name = String::from_utf8_lossy(&entry.path).into_owned();
            files.push((name, entry.node, metadata.size));
        }
    }
    files
}

fn extents(fs: &dyn FileSystem, node: NodeId) -> Result<Vec<Extent>> {
    let mut extents = Vec::new();
    fs.map(node, 0..u64::MAX, &mut |extent| {
        extents.push(extent);
        ControlFlow::Continue(())
    })?;
    Ok(extents)
}

#[test]
fn every_golden_holds_what_it_was_made_of() {
    for (name, image) in goldens() {
        let source = MemorySource::new(image.clone());
        let fs = open(image).unwrap();
        let mut actual = String::new();
        for (path, node, size) in files(&fs) {
            let bytes = read_extents(&fs, &source, node, 0..size).unwrap();
            let digest = blake3::hash(&bytes);
            actual += &format!("{path} {size} {digest}\n");
        }
        assert_eq!(actual, CONTENTS, "{name}");
    }
}

#[test]
fn every_golden_keeps_the_contract_of_maps() {
    for (name, image) in goldens() {
        println!("{name}");
        check_filesystem(&open(image).unwrap(), &Limits::default());
    }
}

#[test]
fn the_goldens_have_every_codec_whole_and_in_part() {
    let mut seen = BTreeSet::new();
    for (_, image) in goldens() {
        let fs = open(image).unwrap();
        for (_, node, _) in files(&fs) {
            for extent in extents(&fs, node).unwrap() {
                seen.insert(match extent.place {
                    Place::Zero => "zero".to_owned(),
                    Place::Stored { .. } => "stored".to_owned(),
                    Place::Inline(_) => "inline".to_owned(),
                    Place::Encoded { block, .. } => match block.decoded_len {
                        DecodedLen::Prefix(_) => format!("{}, a part", block.codec.name()),
                        _ => block.codec.name().to_owned(),
                    },
                });
            }
        }
    }
    for codec in [Codec::Lz4, Codec::MicroLzma, Codec::Deflate, Codec::Zstd] {
        assert!(seen.contains(codec.name()), "{codec:?} of {seen:?}");
        let part = format!("{}, a part", codec.name());
        assert!(seen.contains(&part), "{part} of {seen:?}");
    }
    assert!(seen.contains("stored"), "{seen:?}");
}

/// Changes every byte of the images: maps must return contiguous extents or an error.
#[test]
fn no_byte_makes_a_map_break_its_contract() {
    let mut failed = BTreeSet::new();
    for (name, image) in goldens() {
        // File data is not changed: indexes are before it or close to the end.
        for at in 1024..image.len() {
            if image[at] == 0 && at % 16 != 0 {
                continue;
            }
            for value in [image[at] ^ 1, image[at] ^ 0x88, 0xFF] {
                let mut changed = image.clone();
                changed[at] = value;
                let Ok(fs) = open(changed) else { continue };
                for (path, node, size) in files(&fs) {
                    match extents(&fs, node) {
                        Ok(extents) => {
                            let mut next = 0;
                            for extent in extents {
                                let logical = extent.logical;
                                assert_eq!(logical.start, next, "{name} {at:#x} {path}");
                                assert!(logical.end > next, "{name} {at:#x} {path}");
                                next = logical.end;
                            }
                            assert!(next >= size, "{name} {at:#x} {path}: {next} of {size}");
                        }
                        Err(Error::Corrupt(corrupt)) => {
                            let check = format!("{:?}", corrupt.check());
                            let check = check.split([' ', '(']).next().unwrap().to_owned();
                            failed.insert(check);
                        }
                        Err(Error::Limit { .. } | Error::Unsupported(_)) => {}
                        Err(error) => panic!("{name} {at:#x} = {value:#x} {path}: {error}"),
                    }
                }
            }
        }
    }
    // The checks that a change of one or two bytes can trigger.
    for check in [
        "Algorithm",
        "BlockCount",
        "ClusterBits",
        "ClusterOffset",
        "DataOutside",
        "EntryFlags",
        "Feature",
        "IndexOutside",
        "LookBack",
        "NoExtent",
        "Plain",
        "RecordOrder",
        "Start",
        "TailOutside",
    ] {
        assert!(failed.contains(check), "{check} is not in {failed:?}");
    }
}

/// Linux reads such an image.
#[test]
fn a_tail_behind_the_index_needs_no_feature_bit() {
    const COMPAT: usize = 1024 + 8;
    const INCOMPAT: usize = 1024 + 80;
    let (_, image) = goldens()
        .into_iter()
        .find(|(name, _)| name == "lzma-inline")
        .unwrap();
    let problems = |image: Vec<u8>| {
        let (fs, mut found) = (open(image).unwrap(), Vec::new());
        for (path, node, _) in files(&fs) {
            fs.check(Some(node), &mut |problem| {
                found.push((path.clone(), problem.fatal, problem.error.to_string()));
            })
            .unwrap();
        }
        (all_extents(&fs), found)
    };
    let (expected, none) = problems(image.clone());
    assert!(none.is_empty(), "{none:?}");
    let mut changed = image;
    // Without its checksum, the superblock can be changed.
    changed[COMPAT] &= !1;
    changed[INCOMPAT] &= !0x10;
    let (extents, found) = problems(changed);
    assert_eq!(extents, expected);
    assert!(!found.is_empty());
    for (path, fatal, error) in found {
        assert!(
            !fatal && error.contains("a compressed tail behind the index"),
            "{path}: {error}"
        );
    }
}

#[test]
fn settings_of_a_codec_may_be_longer_than_their_known_fields() {
    let (_, mut image) = goldens()
        .into_iter()
        .find(|(name, _)| name == "lzma-inline")
        .unwrap();
    let expected = all_extents(&open(image.clone()).unwrap());
    image[1024 + 8] &= !1;
    image[1152..1154].copy_from_slice(&u16::MAX.to_le_bytes());
    let fs = open(image.clone()).unwrap();
    assert_eq!(all_extents(&fs), expected);
    let mut warnings = Vec::new();
    fs.check(None, &mut |problem| {
        warnings.push((problem.fatal, problem.error.to_string()))
    })
    .unwrap();
    assert!(
        matches!(&*warnings, [(false, text)] if text.contains("settings of the compressors")),
        "{warnings:?}"
    );
    image[1152..1154].copy_from_slice(&1_u16.to_le_bytes());
    assert!(matches!(open(image), Err(Error::Corrupt(_))));
}

fn all_extents(fs: &Erofs) -> Vec<Extent> {
    let nodes = files(fs).into_iter();
    nodes
        .flat_map(|(_, node, _)| extents(fs, node).unwrap())
        .collect()
}

/// Changes bytes of the images: a read must return the declared length or an error.
#[test]
fn no_byte_makes_a_read_panic() {
    for (name, image) in goldens() {
        if ![
            "lz4-dedupe",
            "lzma-inline",
            "deflate-dedupe",
            "zstd-extents",
        ]
        .contains(&&*name)
        {
            continue;
        }
        for at in (1024..image.len()).step_by(7) {
            let mut changed = image.clone();
            changed[at] ^= 0x55;
            let Ok(fs) = open(changed.clone()) else {
                continue;
            };
            for (_, node, _) in files(&fs) {
                for extent in extents(&fs, node).unwrap_or_default() {
                    let Place::Encoded { block, .. } = extent.place else {
                        continue;
                    };
                    let from = block.offset as usize;
                    let stored = &changed[from..from + block.len as usize];
                    let max = block.decoded_len.max() as usize;
                    if max > 1 << 20 {
                        continue;
                    }
                    let mut out = vec![0; max];
                    if let Ok(len) = block.decode(stored, &mut out) {
                        assert_eq!(len, max);
                    }
                }
            }
        }
    }
}
