//! Volumes as other systems and unplugged devices leave them.

use std::sync::Arc;

use forerun_build::{Content, NewNode, NodeKind, Tree};
use forerun_exfat::Remains;
use forerun_exfat::repair::{Answer, Kind, RepairOptions};
use forerun_exfat::write::ExfatOptions;
use forerun_io::Observer;
use forerun_testkit::device::Errno;
use forerun_vfs::{Changes, FileSystem, FileSystemMut};

use crate::common::{Request, TestDevice, create, list, mkdir, mkfs, open, open_mut, read, write};
use crate::repairing::{
    Files, Map, assert_clean, files, filled, kinds, mend, mend_with, packed, put, seal_set, set_of,
    told, u32_of, u64_of,
};

/// Packs files into a volume of 16 MiB.
fn volume(cluster: u32, names: &[(&str, usize)]) -> Vec<u8> {
    let mut tree = Tree::default();
    for &(name, len) in names {
        let content = Content::Bytes(vec![b'x'; len].into());
        let len = len as u64;
        let node = NewNode::new(NodeKind::File { len, content }, 0o644);
        tree.add(Tree::ROOT, name.as_bytes(), node).unwrap();
    }
    let options = ExfatOptions {
        cluster_size: Some(cluster),
        size: Some(16 << 20),
        ..ExfatOptions::default()
    };
    let mut image = Vec::new();
    forerun_exfat::write::write(&tree, &options, &mut image, &Arc::<Observer>::default()).unwrap();
    image
}

/// Repairs, and asserts that no finding stays and all checkers pass.
#[track_caller]
fn mended(bytes: Vec<u8>, what: &str) -> (Vec<u8>, Vec<Kind>) {
    let (after, summary, findings) = mend(bytes);
    assert_eq!(summary.remains(), 0, "{what}: {findings:?}");
    assert_clean(&after, what);
    (after, kinds(&findings))
}

#[test]
fn a_set_far_behind_the_end_of_a_directory_is_found_and_cleared() {
    let mut image = volume(128 << 10, &[("a.txt", 1), ("old.jpg", 0)]);
    let at = set_of(&image, "old.jpg");
    let map = Map::of(&image);
    for far in [100 << 10, (128 << 10) - 96] {
        let mut bytes = image.clone();
        bytes.copy_within(at..at + 96, map.at(map.root) + far);
        bytes[at..at + 96].fill(0);
        let said = told(&bytes);
        assert!(
            said.iter().any(|said| said.contains("after the end")),
            "{said:?}"
        );
        let (after, kinds) = mended(bytes, "a set behind the end");
        assert_eq!(kinds, [Kind::BehindEnd]);
        assert_eq!(files(&after).keys().collect::<Vec<_>>(), ["/a.txt"]);
    }
    // A file with its own data gets its name back.
    image = volume(128 << 10, &[("a.txt", 1), ("old.jpg", 9)]);
    let at = set_of(&image, "old.jpg");
    image.copy_within(at..at + 96, map.at(map.root) + (100 << 10));
    image[at..at + 96].fill(0);
    let (after, _) = mended(image, "a file behind the end");
    assert_eq!(files(&after)["/old.jpg"], Some(vec![b'x'; 9]));
}

/// Empties a file like an unplugged stick does: its set still names the first cluster, and its
/// clusters are marked used.
fn yank(image: &mut [u8], path: &str, flags: u8) {
    let at = set_of(image, path);
    image[at + 33] = flags;
    put(image, at + 40, &[0; 8]);
    put(image, at + 56, &[0; 8]);
    seal_set(image, at);
}

#[test]
fn an_empty_file_that_names_a_cluster_is_written_and_removed() {
    let mut image = volume(4 << 10, &[("clip", 9000), ("other", 9000), ("ok", 3)]);
    // The flags say whether the clusters are adjacent.
    for flags in [3, 1] {
        for name in ["clip", "other"] {
            yank(&mut image, name, flags);
        }
        let said = told(&image);
        let named = said
            .iter()
            .filter(|said| said.contains("no data, but clusters"));
        assert_eq!(named.count(), 2, "{said:?}");
        let free = free_of(&image);
        let device = TestDevice::new(&image);
        let fs = open_mut(&device, |_| {});
        let root = fs.root();
        fs.unlink(root, b"clip").unwrap();
        let other = fs.lookup(root, b"other").unwrap().unwrap();
        let time = Changes {
            modified: Some(crate::common::TIME),
            ..Changes::default()
        };
        fs.change(other, &time).unwrap();
        fs.rename((root, b"other"), (root, b"renamed"), true)
            .unwrap();
        write(&fs, &*device, other, 0, &[7; 5000]).unwrap();
        create(&fs, root, "new").unwrap();
        fs.finish().unwrap();
        let after = device.to_vec();
        let fs = open(&after);
        let names: Vec<_> = list(&fs, fs.root())
            .into_iter()
            .map(|entry| entry.0)
            .collect();
        assert_eq!(names.len(), 3, "{names:?}");
        let node = fs.lookup(fs.root(), b"renamed").unwrap().unwrap();
        let source = forerun_io::MemorySource::new(after.clone());
        assert_eq!(read(&fs, &source, node), [7; 5000]);
        // The named clusters belong to nothing known, and stay as they were.
        assert_eq!(free_of(&after), free - 2);
        let said = told(&after);
        assert!(
            said.iter().all(|said| said.contains("belong to no file")),
            "{said:?}"
        );
        mended(after, "what is left over");
    }
}

fn free_of(image: &[u8]) -> u64 {
    let device = TestDevice::new(image);
    open_mut(&device, |_| {}).space().unwrap().free
}

/// Returns the offset of the entry of a kind in the root's first cluster.
fn entry(image: &[u8], map: &Map, kind: u8) -> usize {
    let root = map.at(map.root);
    let mut slots = (root..root + map.cluster).step_by(32);
    slots.find(|&at| image[at] == kind).unwrap()
}

/// Returns the offset and the length of the allocation bitmap.
fn bitmap(image: &[u8], map: &Map) -> (usize, usize) {
    let at = entry(image, map, 0x81);
    let len = u64_of(image, at + 24) as usize;
    (map.at(u32_of(image, at + 20)), len)
}

#[test]
fn a_bitmap_without_an_entry_is_found() {
    for image in [Some(packed()), filled("512"), filled("4K")] {
        let Some(image) = image else { return };
        let map = Map::of(&image);
        let at = entry(&image, &map, 0x81);
        for first in [5, 0x01] {
            let mut bytes = image.clone();
            bytes[at..at + 32].fill(0);
            bytes[at] = first;
            let (after, kinds) = mended(bytes, "no entry");
            assert_eq!(kinds, [Kind::BitmapEntry]);
            assert!(after == image);
        }
    }
}

#[test]
fn a_bitmap_is_made_from_the_tree() {
    for image in [Some(packed()), filled("512"), filled("4K")] {
        let Some(image) = image else { return };
        let map = Map::of(&image);
        let (at, (bits, len)) = (entry(&image, &map, 0x81), bitmap(&image, &map));
        let before = files(&image);
        let mut gone = image.clone();
        gone[at..at + 32].fill(0);
        gone[at] = 5;
        gone[bits..bits + len].fill(0);
        // The entry points into a file.
        let mut astray = image.clone();
        let of_file = u32_of(&image, set_of(&image, "whole.bin") + 52);
        put(&mut astray, at + 20, &of_file.to_le_bytes());
        for (bytes, what) in [
            (gone, "no bitmap"),
            (astray, "an entry that leads into a file"),
        ] {
            let dry = RepairOptions {
                dry_run: true,
                ..RepairOptions::default()
            };
            let (same, would, _) = mend_with(bytes.clone(), &dry, Answer::Yes);
            let would = would.unwrap();
            assert!(
                same == bytes && would.repairs() > 0 && would.remains() == 0,
                "{what}"
            );
            let (same, left, _) = mend_with(bytes.clone(), &RepairOptions::default(), Answer::No);
            assert!(same == bytes && left.unwrap().remains() > 0, "{what}");
            let (after, _) = mended(bytes, what);
            assert!(files(&after) == before, "{what}");
        }
    }
}

#[test]
fn a_full_volume_has_no_room_for_a_bitmap() {
    let image = packed();
    let map = Map::of(&image);
    let (at, (bits, len)) = (entry(&image, &map, 0x81), bitmap(&image, &map));
    let mut bytes = image.clone();
    let first = u32_of(&bytes, at + 20);
    for cluster in 2..map.clusters + 2 {
        let bit = bits + (cluster as usize - 2) / 8;
        if image[bit] >> ((cluster - 2) % 8) & 1 == 0 || cluster == first {
            put(
                &mut bytes,
                map.word(cluster),
                &0xFFFF_FFF7_u32.to_le_bytes(),
            );
        }
    }
    bytes[at..at + 32].fill(0);
    bytes[at] = 5;
    bytes[bits..bits + len].fill(0);
    let (_, summary, findings) = mend(bytes);
    let said: Vec<_> = findings
        .iter()
        .map(|finding| finding.error.to_string())
        .collect();
    assert!(
        said.iter()
            .any(|said| said.contains("no room for a new one")),
        "{said:?}"
    );
    assert!(summary.remains() > 0);
}

/// Asserts that each file is at its old path, or below the directory of lost files (`FORERUN.LOST`).
#[track_caller]
fn assert_all_kept(before: &Files, after: &Files, what: &str) {
    for (path, content) in before {
        let is_there = after.get(path) == Some(content);
        let name = path.split_once('/').map_or("", |(_, name)| name);
        let below = name.split_once('/').map(|(_, below)| below);
        let is_lost = after.iter().any(|(at, kept)| {
            at.starts_with("/FORERUN.LOST/")
                && match (below, content, kept) {
                    (Some(below), ..) => at.ends_with(&format!("/{below}")) && kept == content,
                    (None, Some(content), Some(kept)) => kept.starts_with(content),
                    (None, None, kept) => kept.is_none(),
                    _ => false,
                }
        });
        let is_empty = content.as_ref().is_some_and(Vec::is_empty);
        let paths = || after.keys().filter(|path| path.contains("LOST"));
        let paths = || paths().collect::<Vec<_>>();
        assert!(
            is_there || is_lost || is_empty,
            "{what}: {path} is lost: {:?}",
            paths()
        );
    }
}

#[test]
fn what_a_lost_start_of_the_root_named_is_kept() {
    for cluster in ["512", "4K"] {
        let Some(image) = filled(cluster) else { return };
        let map = Map::of(&image);
        let before = files(&image);
        for fill in [0, 0xFF, 0x5A] {
            let mut bytes = image.clone();
            let root = map.at(map.root);
            bytes[root..root + 512].fill(fill);
            let what = format!("clusters of {cluster}, {fill:#x}");
            let (after, kinds) = mended(bytes, &what);
            assert!(kinds.contains(&Kind::BitmapEntry), "{what}");
            assert_all_kept(&before, &files(&after), &what);
        }
    }
}

#[test]
fn directories_without_a_name_are_found_without_a_bitmap() {
    for cluster in ["512", "4K"] {
        let Some(image) = filled(cluster) else { return };
        let map = Map::of(&image);
        let before = files(&image);
        let mut bytes = image.clone();
        let (bits, len) = bitmap(&image, &map);
        bytes[bits..bits + len].fill(0);
        let root = map.at(map.root);
        bytes[root..root + 512].fill(0);
        let (after, _) = mended(bytes, cluster);
        // Clusters of files with entries only in the lost sector are found nowhere else.
        let below = before
            .into_iter()
            .filter(|(path, _)| path.starts_with("/dir/"));
        assert_all_kept(&below.collect(), &files(&after), cluster);
    }
}

#[test]
fn lost_clusters_on_a_full_volume_stay_and_the_reason_is_given() {
    let image = volume(4 << 10, &[("lost", 9000), ("ok", 3)]);
    let device = TestDevice::new(&image);
    let fs = open_mut(&device, |_| {});
    let fill = create(&fs, fs.root(), "fill").unwrap();
    let free = fs.space().unwrap().free;
    fs.allocate(fill, 0..free * 4096, false).unwrap();
    fs.finish().unwrap();
    drop(fs);
    let mut bytes = device.to_vec();
    let at = set_of(&bytes, "lost");
    for slot in 0..3 {
        bytes[at + slot * 32] &= 0x7F;
    }
    let options = RepairOptions {
        keep_lost: true,
        ..RepairOptions::default()
    };
    let (after, summary, findings) = mend_with(bytes.clone(), &options, Answer::Yes);
    let summary = summary.unwrap();
    assert_eq!((summary.repairs(), summary.remains()), (0, 1));
    let said = findings[0].error.to_string();
    assert!(
        said.contains("3 clusters") && said.contains("no room"),
        "{said}"
    );
    assert!(findings[0].remedy.is_none() && after == bytes);
    assert!(summary.kept_in.is_none());
}

#[test]
fn one_repair_makes_one_directory_of_what_was_lost() {
    let Some(image) = filled("512") else { return };
    let before = files(&image);
    let mut bytes = image.clone();
    for path in ["dir", "whole.bin"] {
        let at = set_of(&bytes, path);
        for slot in 0..3 {
            bytes[at + slot * 32] &= 0x7F;
        }
    }
    let options = RepairOptions {
        keep_lost: true,
        ..RepairOptions::default()
    };
    let (after, summary, _) = mend_with(bytes, &options, Answer::Yes);
    assert_eq!(
        summary.unwrap().kept_in.as_deref(),
        Some(&b"FORERUN.LOST"[..])
    );
    assert_clean(&after, "kept");
    let after = files(&after);
    assert_all_kept(&before, &after, "kept");
    let made: Vec<_> = after
        .keys()
        .filter(|path| path.contains("LOST") && path.matches('/').count() == 1)
        .collect();
    assert_eq!(made, ["/FORERUN.LOST"]);
}

#[test]
fn a_rename_that_was_cut_is_an_error_for_check() {
    let image = volume(512, &[("first", 900), ("second", 900)]);
    let mut found = 0;
    for n in 0.. {
        let device = TestDevice::new(&image);
        let fs = open_mut(&device, |_| {});
        let dir = mkdir(&fs, fs.root(), "dir").unwrap();
        fs.sync_all().unwrap();
        fs.rename((fs.root(), b"first"), (dir, b"first"), true)
            .unwrap();
        device.fail_after(n, Request::is_write, Errno::NOSPC);
        if fs.sync_all().is_ok() {
            break;
        }
        drop(fs);
        let bytes = device.to_vec();
        let said = told(&bytes);
        let way = said
            .iter()
            .any(|said| said.contains("interrupted the move of a set"));
        // A checker that ignores the pointer finds neither name.
        let source = forerun_io::MemorySource::new(bytes.clone());
        let report = forerun_testkit::exfat_judge::judge(&source).unwrap();
        let names = report
            .nodes
            .iter()
            .filter(|node| node.name == "first")
            .count();
        assert_eq!(names == 0, way, "{n}: {said:?}");
        found += u32::from(way);
        mended(bytes, "a rename that was cut");
    }
    assert!(found > 0);
}

#[test]
fn a_set_mended_without_its_checksum_keeps_no_entry_that_nothing_vouches_for() {
    let Some(image) = filled("512") else { return };
    let map = Map::of(&image);
    // The second name entry gets a vendor type and an allocation.
    let mut bytes = image.clone();
    let at = set_of(&bytes, "directory 1 in the root");
    put(&mut bytes, at + 35, &[15]);
    put(&mut bytes, at + 96, &[0xE1, 1]);
    put(&mut bytes, at + 116, &(map.clusters - 10).to_le_bytes());
    put(&mut bytes, at + 120, &512_u64.to_le_bytes());
    seal_set(&mut bytes, at);
    bytes[at + 8] ^= 1;
    let (after, kinds) = mended(bytes, "an entry of a vendor");
    assert!(kinds.contains(&Kind::SetChecksum), "{kinds:?}");
    let at = set_of(&after, "directory 1 in ");
    assert_eq!((after[at + 1], after[at + 96] & 0x80), (2, 0));
}

#[test]
fn clusters_of_an_unknown_benign_set_belong_to_it() {
    let Some(image) = filled("512") else { return };
    let map = Map::of(&image);
    let mut bytes = image.clone();
    let at = set_of(&bytes, "empty");
    let cluster = map.clusters - 10;
    bytes[at..at + 96].fill(0);
    put(&mut bytes, at, &[0xA8, 1]);
    put(&mut bytes, at + 32, &[0xE1, 3]);
    put(&mut bytes, at + 52, &cluster.to_le_bytes());
    put(&mut bytes, at + 56, &512_u64.to_le_bytes());
    bytes[at + 64] = 0x41;
    let (bits, _) = bitmap(&bytes, &map);
    bytes[bits + (cluster as usize - 2) / 8] |= 1 << ((cluster - 2) % 8);
    assert_eq!(told(&bytes), [""; 0]);
    let (after, summary, _) = mend(bytes.clone());
    assert!(after == bytes && summary.repairs() == 0);
}

#[test]
fn bits_behind_the_last_cluster_of_the_bitmap_mean_nothing() {
    let mut image = volume(4 << 10, &[("a", 9)]);
    let map = Map::of(&image);
    assert_ne!(map.clusters % 8, 0);
    let read_only = |image: &[u8]| open(image).space().unwrap().free;
    let before = (read_only(&image), free_of(&image));
    let (bits, len) = bitmap(&image, &map);
    image[bits + len - 1] |= !((1 << (map.clusters % 8)) - 1);
    assert_eq!((read_only(&image), free_of(&image)), before);
    assert_eq!(before.0, before.1);
}

#[test]
fn an_exact_name_wins_over_one_that_differs_in_case() {
    let mut image = volume(4 << 10, &[("readme", 1), ("readme-", 2), ("other", 3)]);
    let at = set_of(&image, "readme-");
    let units: Vec<u8> = "README".encode_utf16().flat_map(u16::to_le_bytes).collect();
    image[at + 66..at + 66 + 14].fill(0);
    image[at + 66..at + 66 + 12].copy_from_slice(&units);
    image[at + 35] = 6;
    seal_set(&mut image, at);
    let fs = open(&image);
    let size = |name: &str| {
        let node = fs.lookup(fs.root(), name.as_bytes()).unwrap().unwrap();
        fs.metadata(node).unwrap().size
    };
    assert_eq!((size("readme"), size("README"), size("ReadMe")), (1, 2, 1));

    let device = TestDevice::new(&image);
    let fs = open_mut(&device, |_| {});
    fs.unlink(fs.root(), b"README").unwrap();
    let left = fs.lookup(fs.root(), b"README").unwrap().unwrap();
    assert_eq!(fs.metadata(left).unwrap().size, 1);
}

#[test]
fn deleted_files_are_found_with_a_verdict_for_each() {
    let Some(image) = mkfs(16 << 20, &["-c", "4K"]) else {
        return;
    };
    let device = TestDevice::new(&image);
    let fs = open_mut(&device, |_| {});
    let root = fs.root();
    let dir = mkdir(&fs, root, "dir").unwrap();
    let put = |dir, name: &str, byte: u8, len: usize| {
        let node = create(&fs, dir, name).unwrap();
        write(&fs, &*device, node, 0, &vec![byte; len]).unwrap();
        node
    };
    put(root, "stays", 1, 5000);
    put(root, "whole", 2, 9000);
    let over = put(dir, "over", 3, 9000);
    // Each takes a cluster behind the other's.
    let one = put(dir, "one", 4, 4096);
    let two = put(dir, "two", 5, 4096);
    write(&fs, &*device, one, 4096, &[6; 4096]).unwrap();
    write(&fs, &*device, two, 4096, &[7; 4096]).unwrap();
    fs.sync_all().unwrap();
    let first = u32_of(&device.to_vec(), over.0 as usize * 32 + 52);
    for name in ["over", "one", "two"] {
        fs.unlink(dir, name.as_bytes()).unwrap();
    }
    fs.unlink(root, b"whole").unwrap();
    fs.rmdir(root, b"dir").unwrap();
    // The old set of a file that was renamed to another sector is no deleted file.
    let long = "x".repeat(200);
    fs.rename((root, b"stays"), (root, long.as_bytes()), true)
        .unwrap();
    fs.finish().unwrap();
    drop(fs);

    let mut image = device.to_vec();
    let map = Map::of(&image);
    let (bits, _) = bitmap(&image, &map);
    let index = first as usize - 2 + 1;
    image[bits + index / 8] |= 1 << (index % 8);
    let fs = crate::repairing::rescued(&image).unwrap();
    let mut found = fs.deleted_files().unwrap();
    found.sort_by(|a, b| a.path.cmp(&b.path));
    let told: Vec<_> = found
        .iter()
        .map(|file| {
            (
                String::from_utf8_lossy(&file.path),
                file.remains,
                &*file.lost,
            )
        })
        .collect();
    let lost = 4096..8192;
    assert_eq!(
        told,
        [
            ("dir/one".into(), Remains::Fragmented, &[][..]),
            (
                "dir/over".into(),
                Remains::Overwritten,
                std::slice::from_ref(&lost)
            ),
            ("dir/two".into(), Remains::Fragmented, &[][..]),
            ("whole".into(), Remains::Whole, &[][..]),
        ]
    );
    let source = forerun_io::MemorySource::new(image.clone());
    assert_eq!(read(&fs, &source, found[3].node), [2; 9000]);
    assert_eq!(
        read(&fs, &source, found[0].node),
        [[4; 4096], [6; 4096]].concat()
    );
    // A volume that is not rescued shows none.
    assert!(open(&image).deleted_files().is_err());
}
