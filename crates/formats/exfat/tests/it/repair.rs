//! Each kind of damage to real volumes: the repair recognises it and mends it, all checkers then
//! find the volume clean, and the files are unchanged.

use std::ops::ControlFlow;
use std::sync::Arc;

use forerun_exfat::Exfat;
use forerun_exfat::repair::{Answer, Kind, RepairOptions};
use forerun_io::MemorySource;
use forerun_vfs::{DirCursor, FileSystem, OpenWith, Place};

use crate::repairing::{
    Files, Map, assert_clean, files, files_of, filled, kinds, mend, mend_with, mend_with_undo,
    packed, put, rescued, seal_boot, seal_set, set_of, told, u32_of, u64_of, undone,
};

enum Then {
    Same,
    /// These files differ; all others are unchanged.
    But(&'static [&'static str]),
    /// These files have other names; all others are unchanged.
    Renamed(&'static [(&'static str, &'static str)]),
}

struct Damage {
    what: &'static str,
    does: fn(&mut Vec<u8>, &Map),
    kind: Kind,
    says: &'static str,
    then: Then,
}

fn damage(
    what: &'static str,
    kind: Kind,
    says: &'static str,
    then: Then,
    does: fn(&mut Vec<u8>, &Map),
) -> Damage {
    Damage {
        what,
        does,
        kind,
        says,
        then,
    }
}

/// Finds the slot of the bitmap or of the up-case table in the root directory.
fn system(image: &[u8], map: &Map, kind: u8) -> usize {
    let root = map.at(map.root);
    let mut slots = (root..root + map.cluster).step_by(32);
    slots.find(|&at| image[at] == kind).unwrap()
}

fn bit(image: &mut [u8], map: &Map, cluster: u32) {
    let bitmap = map.at(u32_of(image, system(image, map, 0x81) + 20));
    image[bitmap + (cluster as usize - 2) / 8] ^= 1 << ((cluster - 2) % 8);
}

fn first(image: &[u8], path: &str) -> u32 {
    u32_of(image, set_of(image, path) + 52)
}

fn set_field(image: &mut [u8], path: &str, at: usize, bytes: &[u8]) {
    let set = set_of(image, path);
    put(image, set + at, bytes);
    seal_set(image, set);
}

#[rustfmt::skip]
fn volume_damages() -> Vec<Damage> {
    vec![
        damage("the dirty flag", Kind::Dirty, "marked dirty", Then::Same, |image, _| image[106] |= 2),
        damage("percent in use", Kind::Percent, "101 percent", Then::Same, |image, _| image[112] = 101),
        damage("the main boot sector", Kind::MainBoot, "checksum", Then::Same, |image, _| image[100] ^= 1),
        damage("the main boot sector's name", Kind::MainBoot, "is not valid", Then::Same, |image, _| image[3] = b'X'),
        damage("the main boot sectors are gone", Kind::MainBoot, "is not valid", Then::Same, |image, _| image[..6144].fill(0)),
        damage("the backup boot sector", Kind::BackupBoot, "differs", Then::Same, |image, _| image[6144 + 100] ^= 1),
        damage("the backup is gone", Kind::BackupBoot, "differs", Then::Same, |image, _| image[6144..12_288].fill(0)),
        damage("both differ, sealed", Kind::BackupBoot, "differs", Then::Same, |image, _| { image[100] ^= 1; seal_boot(image); }),
        damage("the first word of the FAT", Kind::FatHead, "begins with", Then::Same, |image, map| image[map.fat] = 0),
        damage("a used cluster marked free", Kind::UsedFree, "in use, but marked free", Then::Same, |image, map| { let c = first(image, "whole.bin"); bit(image, map, c + 1); }),
        damage("the whole bitmap is zeros", Kind::UsedFree, "in use, but marked free", Then::Same, |image, map| { let at = map.at(2); image[at..at + (map.clusters as usize).div_ceil(8)].fill(0); }),
        damage("leaked clusters", Kind::Leaked, "2 clusters from", Then::Same, |image, map| { let c = map.clusters - 10; bit(image, map, c); bit(image, map, c + 1); }),
        damage("the bitmap's type", Kind::BitmapEntry, "no allocation bitmap", Then::Same, |image, map| { let at = system(image, map, 0x81); image[at] = 0x01; }),
        damage("the bitmap's length", Kind::BitmapEntry, "bytes long", Then::Same, |image, map| { let at = system(image, map, 0x81); put(image, at + 24, &3_u64.to_le_bytes()); }),
        damage("the bitmap's chain", Kind::BitmapEntry, "", Then::Same, |image, map| { put(image, map.word(2), &0_u32.to_le_bytes()); let at = system(image, map, 0x81); put(image, at + 24, &1_u64.to_le_bytes()); }),
        damage("the up-case table's type", Kind::UpcaseTable, "no up-case table", Then::Same, |image, map| { let at = system(image, map, 0x82); image[at] = 0x02; }),
        damage("the up-case table's bytes", Kind::UpcaseTable, "is damaged", Then::Same, |image, map| { let at = map.at(u32_of(image, system(image, map, 0x82) + 20)); image[at + 100] ^= 0x40; }),
        damage("the up-case table's checksum", Kind::UpcaseTable, "is damaged", Then::Same, |image, map| { let at = system(image, map, 0x82); image[at + 4] ^= 1; }),
        damage("the up-case table's cluster", Kind::UpcaseTable, "is damaged", Then::Same, |image, map| { let at = system(image, map, 0x82); put(image, at + 20, &0_u32.to_le_bytes()); }),
        damage("the up-case table's entry is gone", Kind::UpcaseTable, "no up-case table", Then::Same, |image, map| { let at = system(image, map, 0x82); image[at..at + 32].fill(0); image[at] = 0x05; }),
        damage("a second up-case table", Kind::Double, "a second up-case table", Then::But(&["/empty"]), |image, map| { let (at, to) = (system(image, map, 0x82), set_of(image, "empty")); image.copy_within(at..at + 32, to); image[to + 32] = 0x40; image[to + 64] = 0x41; }),
        damage("the label's length", Kind::Label, "12 characters", Then::Same, |image, map| { let at = system(image, map, 0x83); image[at + 1] = 12; }),
        damage("the root's chain comes back", Kind::Chain, "comes back", Then::Same, |image, map| { let mut last = map.root; while map.next(image, last) != u32::MAX { last = map.next(image, last); } put(image, map.word(last), &map.root.to_le_bytes()); }),
    ]
}

const SHORTER: Then = Then::Renamed(&[("/directory 1 in the root", "/directory 1 in ")]);

#[rustfmt::skip]
fn file_damages() -> Vec<Damage> {
    vec![
        damage("a set's checksum", Kind::SetChecksum, "stores the checksum", Then::Same, |image, _| { let at = set_of(image, "whole.bin"); image[at + 2] ^= 1; }),
        damage("a directory's checksum", Kind::SetChecksum, "stores the checksum", Then::Same, |image, _| { let at = set_of(image, "dir"); image[at + 2] ^= 1; }),
        damage("a name's hash", Kind::NameHash, "stores the name hash", Then::Same, |image, _| set_field(image, "whole.bin", 36, &[0xAA, 0xAA])),
        damage("the number of a set's entries", Kind::SetForm, "set of 7", Then::Same, |image, _| { let at = set_of(image, "whole.bin"); image[at + 1] = 7; }),
        damage("the type of a name entry", Kind::SetForm, "set of 2", Then::Same, |image, _| { let at = set_of(image, "whole.bin"); image[at + 64] = 0x41; }),
        damage("the type of a stream extension", Kind::SetForm, "entry 1 is of type 0xe0", Then::Same, |image, _| { let at = set_of(image, "whole.bin"); image[at + 32] = 0xE0; }),
        damage("the type of a file entry", Kind::SetForm, "entry 0 is of type 0x95", Then::Same, |image, _| { let at = set_of(image, "whole.bin"); image[at] = 0x95; }),
        damage("an end within a directory", Kind::SetForm, "entry 0 is of type 0x00", Then::Same, |image, _| { let at = set_of(image, "whole.bin"); image[at] = 0; }),
        damage("an end within a directory, over a whole set", Kind::BehindEnd, "files after the end", Then::But(&["/dir/below/file 1 0"]), |image, _| { let at = set_of(image, "dir/below/file 1 0"); image[at..at + 96].fill(0); }),
        damage("a name entry is gone", Kind::SetForm, "set of 3", Then::Renamed(&[("/directory 1 in the root", "/directory 1 in ")]), |image, _| { let at = set_of(image, "directory 1 in the root"); image[at + 96..at + 128].fill(0x05); }),
        damage("all of a name is gone", Kind::SetForm, "set of 2", Then::Renamed(&[("/whole.bin", "/LOST~1")]), |image, _| { let at = set_of(image, "whole.bin"); image[at + 64..at + 96].fill(0x05); }),
        damage("name entries without a set", Kind::LostEntry, "belongs to no set", Then::But(&["/empty"]), |image, _| { let at = set_of(image, "empty"); image[at] = 0x05; image[at + 32] = 0x40; }),
        damage("a stream extension is gone", Kind::LostSet, "secondary entry 1", Then::But(&["/empty"]), |image, _| { let at = set_of(image, "empty"); image.copy_within(at + 64..at + 96, at + 32); }),
        damage("a forbidden character", Kind::Name, "character 0x003a", Then::Renamed(&[("/whole.bin", "/w_ole.bin")]), |image, _| set_field(image, "whole.bin", 68, b":")),
        damage("a slash", Kind::Name, "slash", Then::Renamed(&[("/whole.bin", "/w_ole.bin")]), |image, _| set_field(image, "whole.bin", 68, b"/")),
        damage("the name ..", Kind::Name, "is . or ..", Then::Renamed(&[("/late", "/__")]), |image, _| { let at = set_of(image, "late"); image[at + 66..at + 96].fill(0); put(image, at + 66, b".\0.\0"); image[at + 35] = 2; seal_set(image, at); }),
        damage("a name that is there twice", Kind::NameTwice, "twice", Then::But(&["/dir/pieces", "/dir/other pieces"]), |image, _| { let at = set_of(image, "dir/other pieces"); image[at + 66..at + 96].fill(0); let name: Vec<u8> = "PIECES".encode_utf16().flat_map(u16::to_le_bytes).collect(); put(image, at + 66, &name); image[at + 35] = 6; seal_set(image, at); }),
        damage("characters behind a name", Kind::SetForm, "hold more", Then::Same, |image, _| set_field(image, "late", 90, b"x")),
        damage("valid bytes behind the length", Kind::Length, "the data length 20000", Then::Same, |image, _| set_field(image, "whole.bin", 40, &20_001_u64.to_le_bytes())),
        damage("a directory's valid length", Kind::Length, "the valid length is", Then::Same, |image, _| set_field(image, "dir", 40, &1_u64.to_le_bytes())),
        damage("a directory's odd length", Kind::Length, "a whole number of clusters", Then::Same, |image, _| { let at = set_of(image, "dir"); let len = u64_of(image, at + 56) - 1; put(image, at + 56, &len.to_le_bytes()); put(image, at + 40, &len.to_le_bytes()); seal_set(image, at); }),
        damage("a directory's length is 0", Kind::Length, "no data, but clusters", Then::Same, |image, map| { let at = set_of(image, "dir/below"); let mut c = u32_of(image, at + 52); if image[at + 33] & 2 != 0 { for _ in 1..u64_of(image, at + 56) as usize / map.cluster { put(image, map.word(c), &(c + 1).to_le_bytes()); c += 1; } put(image, map.word(c), &u32::MAX.to_le_bytes()); image[at + 33] = 1; } put(image, at + 56, &[0; 8]); put(image, at + 40, &[0; 8]); seal_set(image, at); }),
        damage("a length without a cluster", Kind::Length, "but no cluster", Then::But(&["/whole.bin"]), |image, _| set_field(image, "whole.bin", 52, &[0; 4])),
        damage("a cluster without a length", Kind::Length, "no data, but clusters", Then::Same, |image, _| set_field(image, "empty", 52, &[9, 0, 0, 0])),
        damage("a first cluster that is none", Kind::Length, "not on the volume", Then::But(&["/whole.bin"]), |image, _| set_field(image, "whole.bin", 52, &[0xFF, 0xFF, 0xFF, 0])),
        damage("a run that leaves the volume", Kind::Chain, "the volume holds", Then::But(&["/whole.bin"]), |image, _| set_field(image, "whole.bin", 56, &(1_u64 << 40).to_le_bytes())),
        damage("a directory that leaves the volume", Kind::Chain, "the volume holds", Then::Same, |image, _| { let at = set_of(image, "dir"); put(image, at + 56, &(1_u64 << 40).to_le_bytes()); put(image, at + 40, &(1_u64 << 40).to_le_bytes()); seal_set(image, at); }),
        damage("a chain that ends early", Kind::Chain, "ends after 1 of", Then::But(&["/dir/pieces"]), |image, map| { let c = first(image, "dir/pieces"); put(image, map.word(c), &u32::MAX.to_le_bytes()); }),
        damage("a chain that leads nowhere", Kind::Chain, "leads to 0x0", Then::But(&["/dir/pieces"]), |image, map| { let c = first(image, "dir/pieces"); put(image, map.word(c), &[0; 4]); }),
        damage("a chain that comes back", Kind::Chain, "comes back to cluster", Then::But(&["/dir/pieces"]), |image, map| { let c = first(image, "dir/pieces"); let next = map.next(image, c); put(image, map.word(next), &c.to_le_bytes()); }),
        damage("a chain that goes on", Kind::ChainLong, "goes on after", Then::Same, |image, map| { let mut c = first(image, "dir/pieces"); while map.next(image, c) != u32::MAX { c = map.next(image, c); } put(image, map.word(c), &(map.clusters - 3).to_le_bytes()); }),
        damage("two files with one chain", Kind::CrossLink, "another file or directory", Then::But(&["/dir/other pieces"]), |image, _| { let c = first(image, "dir/pieces"); set_field(image, "dir/other pieces", 52, &c.to_le_bytes()); }),
        damage("a file in a file", Kind::CrossLink, "another file or directory", Then::But(&["/late"]), |image, _| { let c = first(image, "whole.bin"); set_field(image, "late", 52, &c.to_le_bytes()); }),
        damage("a file in the root directory", Kind::CrossLink, "another file or directory", Then::But(&["/whole.bin"]), |image, map| set_field(image, "whole.bin", 52, &map.root.to_le_bytes())),
        damage("a directory in its parent", Kind::CrossLink, "another file or directory", Then::But(&["/dir/below/"]), |image, map| { let c = first(image, "dir"); let at = set_of(image, "dir/below"); put(image, at + 56, &(map.cluster as u64).to_le_bytes()); put(image, at + 40, &(map.cluster as u64).to_le_bytes()); image[at + 33] = 3; put(image, at + 52, &c.to_le_bytes()); seal_set(image, at); }),
        damage("an impossible time", Kind::Time, "is not valid", Then::Same, |image, _| set_field(image, "whole.bin", 8, &[0xFF; 4])),
        damage("a reserved field", Kind::Reserved, "Reserved1", Then::Same, |image, _| set_field(image, "whole.bin", 6, &[1])),
        damage("unknown attributes", Kind::Reserved, "FileAttributes", Then::Same, |image, _| set_field(image, "whole.bin", 5, &[0x80])),
        damage("the flags of a stream extension", Kind::Reserved, "flags 0x02", Then::Same, |image, _| set_field(image, "whole.bin", 33, &[2])),
        damage("an entry of the invalid type", Kind::Entry, "invalid type 0x80", Then::But(&["/dir/below/file 1 0"]), |image, _| { let at = set_of(image, "dir/below/file 1 0"); for slot in 0..3 { image[at + slot * 32..at + slot * 32 + 32].fill(0x80); } }),
        damage("an entry of the root in another directory", Kind::Entry, "other than the root", Then::But(&["/dir/below/file 1 0"]), |image, _| { let at = set_of(image, "dir/below/file 1 0"); for slot in 0..3 { image[at + slot * 32] = 0x83; image[at + slot * 32 + 1] = 0; } }),
        damage("entries behind the end", Kind::BehindEnd, "after the end", Then::Same, |image, map| { let c = first(image, "directory 1 in the root"); let at = map.at(c) + 96; put(image, at, &[0xC1, 0, b'x']); }),
        damage("a critical secondary entry of unknown type", Kind::UnknownSecondary, "secondary entry of unknown type 0xd0", SHORTER, |image, _| { let at = set_of(image, "directory 1 in the root"); image[at + 35] = 15; image[at + 96..at + 128].fill(0); put(image, at + 96, &[0xD0, 0, 7]); seal_set(image, at); }),
        damage("a critical secondary entry of unknown type with a cluster", Kind::UnknownSecondary, "secondary entry of unknown type 0xd0", SHORTER, |image, map| { let at = set_of(image, "directory 1 in the root"); let c = map.clusters - 10; bit(image, map, c); image[at + 35] = 15; image[at + 96..at + 128].fill(0); put(image, at + 96, &[0xD0, 3]); put(image, at + 116, &c.to_le_bytes()); put(image, at + 120, &(map.cluster as u64).to_le_bytes()); seal_set(image, at); }),
        damage("a file that is said to be a directory", Kind::SetChecksum, "stores the checksum", Then::Same, |image, _| { let at = set_of(image, "whole.bin"); image[at + 4] |= 0x10; }),
        damage("a directory that is said to be a file", Kind::SetChecksum, "stores the checksum", Then::Same, |image, _| { let at = set_of(image, "dir"); image[at + 4] &= !0x10; }),
    ]
}

fn run(image: &[u8], damages: Vec<Damage>) {
    let map = Map::of(image);
    let before = files(image);
    let mut failed = Vec::new();
    for damage in &damages {
        let outcome = std::panic::catch_unwind(|| one(image, &map, &before, damage));
        if outcome.is_err() {
            failed.push(damage.what);
        }
    }
    assert_eq!(failed, [""; 0]);
}

fn one(image: &[u8], map: &Map, before: &Files, damage: &Damage) {
    let what = damage.what;
    let mut bytes = image.to_vec();
    (damage.does)(&mut bytes, map);
    assert!(!told(&bytes).is_empty(), "{what}: check sees nothing");
    let dry = RepairOptions {
        dry_run: true,
        ..RepairOptions::default()
    };
    let (same, would, _) = mend_with(bytes.clone(), &dry, Answer::Yes);
    assert!(same == bytes, "{what}: a dry run writes");
    assert!(would.unwrap().repairs() > 0, "{what}");
    let (after, summary, findings) = mend(bytes.clone());
    let (same, undo) = mend_with_undo(bytes.clone());
    assert!(same == after, "{what}: an undo file changes the repair");
    assert!(undone(undo, same) == bytes, "{what}: undo");
    let said: Vec<_> = findings
        .iter()
        .map(|finding| (finding.kind, finding.error.to_string()))
        .collect();
    let is_it = |(kind, says): &(Kind, String)| *kind == damage.kind && says.contains(damage.says);
    assert!(said.iter().any(is_it), "{what}: {said:?}");
    assert_eq!(summary.remains(), 0, "{what}: {:?}", kinds(&findings));
    assert_clean(&after, what);
    compare(before, &files(&after), &damage.then, what);
    let (again, summary, _) = mend(after.clone());
    assert!(again == after && summary.repairs() == 0, "{what}: twice");
}

fn compare(before: &Files, after: &Files, then: &Then, what: &str) {
    for (path, content) in before {
        let path = match then {
            Then::But(changed) if changed.iter().any(|changed| is_of(path, changed)) => continue,
            Then::Renamed(names) => {
                let renamed = names.iter().find(|(from, _)| from == path);
                renamed.map_or(path.as_str(), |(_, to)| to)
            }
            Then::Same | Then::But(_) => path.as_str(),
        };
        assert!(after.get(path) == Some(content), "{what}: {path}");
    }
}

/// Returns whether a path is `changed`, or below `changed` if that ends with a slash.
fn is_of(path: &str, changed: &str) -> bool {
    path == changed || (changed.ends_with('/') && path.starts_with(changed))
}

#[test]
fn volumes_of_small_clusters() {
    let Some(image) = filled("512") else { return };
    run(&image, volume_damages());
    run(&image, file_damages());
}

#[test]
fn volumes_of_larger_clusters() {
    let Some(image) = filled("4K") else { return };
    run(&image, volume_damages());
    run(&image, file_damages());
}

#[test]
fn packed_volumes() {
    let image = packed();
    run(&image, volume_damages());
}

#[test]
fn a_sound_volume_is_left_alone() {
    let Some(image) = filled("4K") else { return };
    let (after, summary, findings) = mend(image.clone());
    assert!(after == image && findings.is_empty());
    assert_eq!((summary.repairs(), summary.remains()), (0, 0));
    assert!(summary.entries > 50);
}

#[test]
fn what_is_declined_stays() {
    let Some(image) = filled("512") else { return };
    let map = Map::of(&image);
    for damage in volume_damages().into_iter().chain(file_damages()) {
        let mut bytes = image.clone();
        (damage.does)(&mut bytes, &map);
        let options = RepairOptions::default();
        let (after, summary, _) = mend_with(bytes.clone(), &options, Answer::No);
        assert!(after == bytes, "{}", damage.what);
        assert!(summary.unwrap().remains() > 0, "{}", damage.what);
    }
}

#[test]
fn a_wrong_volume_length_is_told_and_left() {
    let Some(image) = filled("512") else { return };
    // Shifted by the size of a sector, the second one is the true length again.
    for odd in [1, 0x8D00_0000_0000_0000] {
        let mut bytes = image.clone();
        let length = u64::from_le_bytes(bytes[72..80].try_into().unwrap()) + odd;
        put(&mut bytes, 72, &length.to_le_bytes());
        seal_boot(&mut bytes);
        bytes.copy_within(..6144, 6144);
        let (after, summary, findings) = mend(bytes.clone());
        assert!(after == bytes, "{odd:#x}");
        assert_eq!((summary.repairs(), summary.remains()), (0, 1));
        let told = findings[0].error.to_string();
        assert!(told.contains("VolumeLength"), "{told}");
    }
}

#[test]
fn no_room_for_a_copy() {
    let Some(image) = filled("4K") else { return };
    let map = Map::of(&image);
    let mut bytes = image.clone();
    let c = first(&bytes, "dir/pieces");
    set_field(&mut bytes, "dir/other pieces", 52, &c.to_le_bytes());
    // Every free cluster is marked bad.
    for cluster in 2..map.clusters + 2 {
        let bitmap = map.at(2) + (cluster as usize - 2) / 8;
        if bytes[bitmap] >> ((cluster - 2) % 8) & 1 == 0 {
            put(
                &mut bytes,
                map.word(cluster),
                &0xFFFF_FFF7_u32.to_le_bytes(),
            );
        }
    }
    let (after, summary, findings) = mend(bytes.clone());
    assert!(kinds(&findings).contains(&Kind::CrossLinkCut));
    assert!(summary.remains() > 0);
    // All readable data is still there.
    let (was, is) = (files(&bytes), files(&after));
    assert!(was == is);
}

#[test]
fn lost_clusters_become_files() {
    let Some(image) = filled("512") else { return };
    let before = files(&image);
    let mut bytes = image.clone();
    let at = set_of(&bytes, "dir/pieces");
    for entry in 0..3 {
        bytes[at + entry * 32] &= 0x7F;
    }
    let options = RepairOptions {
        keep_lost: true,
        ..RepairOptions::default()
    };
    let (after, summary, _) = mend_with(bytes.clone(), &options, Answer::Yes);
    let summary = summary.unwrap();
    assert_eq!(summary.kept_in.as_deref(), Some(&b"FORERUN.LOST"[..]));
    assert_clean(&after, "kept");
    let after = files(&after);
    let lost: Vec<_> = after
        .iter()
        .filter(|(path, _)| path.starts_with("/FORERUN.LOST/"))
        .collect();
    let content = before["/dir/pieces"].as_ref().unwrap();
    assert_eq!(
        lost.len(),
        1,
        "{:?}",
        lost.iter().map(|l| l.0).collect::<Vec<_>>()
    );
    assert!(lost[0].1.as_ref().unwrap().starts_with(content));
    // Freed without `keep_lost`.
    let (freed, summary, _) = mend(bytes);
    assert!(summary.kept_in.is_none());
    assert_clean(&freed, "freed");
}

#[test]
fn a_lost_directory_is_one_again() {
    let Some(image) = filled("512") else { return };
    let before = files(&image);
    let mut bytes = image.clone();
    let at = set_of(&bytes, "dir");
    // The stream extension is lost, and with it the location of the directory.
    bytes.copy_within(at + 64..at + 96, at + 32);
    let (after, summary, _) = mend(bytes);
    assert_clean(&after, "a lost directory");
    assert_eq!(summary.kept_in.as_deref(), Some(&b"FORERUN.LOST"[..]));
    let after = files(&after);
    for (path, content) in before {
        let Some(below) = path.strip_prefix("/dir/") else {
            continue;
        };
        let kept = after.iter().find(|(path, _)| {
            path.starts_with("/FORERUN.LOST/dir") && path.ends_with(&format!("/{below}"))
        });
        assert_eq!(kept.map(|kept| kept.1), Some(&content), "{path}");
    }
}

#[test]
fn a_rescue_shows_what_a_damaged_volume_still_has() {
    let Some(image) = filled("512") else { return };
    let (map, before) = (Map::of(&image), files(&image));
    let both_regions = damage(
        "both boot regions",
        Kind::MainBoot,
        "checksum",
        Then::Same,
        |image, _| {
            image[100] ^= 1;
            image[6144 + 100] ^= 1;
        },
    );
    let cut = damage(
        "a cut",
        Kind::Unreadable,
        "bytes",
        Then::Same,
        |image, _| {
            let used = image.iter().rposition(|&byte| byte != 0).unwrap();
            image.truncate(used.next_multiple_of(512));
        },
    );
    let (mut refused, mut silent) = (Vec::new(), Vec::new());
    for damage in volume_damages().into_iter().chain([both_regions, cut]) {
        let mut bytes = image.clone();
        (damage.does)(&mut bytes, &map);
        let open = OpenWith::new(Arc::new(MemorySource::new(bytes.clone())));
        let is_refused = Exfat::open(open).is_err();
        let fs = rescued(&bytes).unwrap_or_else(|error| panic!("{}: {error}", damage.what));
        compare(&before, &files_of(&fs, &bytes), &damage.then, damage.what);
        if is_refused {
            refused.push(damage.what);
            if fs.volume().warnings.is_empty() {
                silent.push(damage.what);
            }
        }
    }
    assert_eq!(silent, [""; 0], "passed over without a word");
    assert!(refused.len() >= 8, "{refused:?}");
}

#[test]
fn a_rescue_reads_a_file_up_to_where_its_chain_breaks() {
    let Some(mut image) = filled("512") else {
        return;
    };
    let (map, before) = (Map::of(&image), files(&image));
    let c = first(&image, "dir/pieces");
    let c = map.next(&image, map.next(&image, c));
    put(&mut image, map.word(c), &0_u32.to_le_bytes());
    let fs = rescued(&image).unwrap();
    let dir = fs.lookup(fs.root(), b"dir").unwrap().unwrap();
    let node = fs.lookup(dir, b"pieces").unwrap().unwrap();
    let whole = before["/dir/pieces"].as_ref().unwrap();
    let mut sound = Vec::new();
    fs.map(node, 0..3 * 512, &mut |extent| {
        if let Place::Stored { offset, .. } = extent.place {
            let (at, len) = (offset as usize, extent.logical.end - extent.logical.start);
            sound.extend_from_slice(&image[at..at + len as usize]);
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    assert!(sound == whole[..3 * 512]);
    let beyond = fs.map(node, 3 * 512..2000, &mut |_| ControlFlow::Continue(()));
    let beyond = beyond.unwrap_err().to_string();
    assert!(beyond.contains("ends after 3 of"), "{beyond}");
    // All other files are intact.
    let after = files_of(&fs, &image);
    compare(
        &before,
        &after,
        &Then::But(&["/dir/pieces"]),
        "a broken chain",
    );
}

#[test]
fn a_rescue_lists_a_directory_up_to_where_its_chain_breaks() {
    let Some(mut image) = filled("512") else {
        return;
    };
    let (map, before) = (Map::of(&image), files(&image));
    let c = map.next(&image, first(&image, "dir/below"));
    put(&mut image, map.word(c), &0_u32.to_le_bytes());
    let fs = rescued(&image).unwrap();
    let dir = fs.lookup(fs.root(), b"dir").unwrap().unwrap();
    let below = fs.lookup(dir, b"below").unwrap().unwrap();
    let mut names = Vec::new();
    let listed = fs.read_dir(below, DirCursor::START, &mut |entry| {
        names.push(String::from_utf8(entry.name.to_vec()).unwrap());
        ControlFlow::Continue(())
    });
    let error = listed.unwrap_err().to_string();
    assert!(error.contains("chain"), "{error}");
    let known = |name: &String| before.contains_key(&format!("/dir/below/{name}"));
    assert!(names.len() >= 8 && names.iter().all(known), "{names:?}");
}
