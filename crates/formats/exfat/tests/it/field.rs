//! Volumes as other systems and pulled plugs leave them.

use std::sync::Arc;

use forerun_build::{Content, NewNode, NodeKind, Tree};
use forerun_exfat::repair::Kind;
use forerun_exfat::write::ExfatOptions;
use forerun_io::Observer;
use forerun_vfs::{Changes, FileSystem, FileSystemMut};

use crate::common::{Recorder, create, list, mkdir, open, open_mut, read, write};
use crate::repairing::{Map, assert_clean, files, kinds, mend, put, seal_set, set_of, told};

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

/// Mends, and asserts that nothing is left and all checkers are content.
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
            said.iter().any(|said| said.contains("behind the end")),
            "{said:?}"
        );
        let (after, kinds) = mended(bytes, "a set behind the end");
        assert_eq!(kinds, [Kind::BehindEnd]);
        assert_eq!(files(&after).keys().collect::<Vec<_>>(), ["/a.txt"]);
    }
    // One with data of its own gets its name back.
    image = volume(128 << 10, &[("a.txt", 1), ("old.jpg", 9)]);
    let at = set_of(&image, "old.jpg");
    image.copy_within(at..at + 96, map.at(map.root) + (100 << 10));
    image[at..at + 96].fill(0);
    let (after, _) = mended(image, "a file behind the end");
    assert_eq!(files(&after)["/old.jpg"], Some(vec![b'x'; 9]));
}

/// Makes a file empty as a pulled stick leaves it: its set names the first cluster, and its clusters are
/// marked used.
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
    // The flags of the set say that its clusters are adjacent, or not.
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
        let device = Recorder::new(&image);
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
        // The clusters that were named belong to nothing that is known, and stay as they were.
        assert_eq!(free_of(&after), free - 2);
        let said = told(&after);
        assert!(
            said.iter().all(|said| said.contains("belong to nothing")),
            "{said:?}"
        );
        mended(after, "what is left over");
    }
}

fn free_of(image: &[u8]) -> u64 {
    let device = Recorder::new(image);
    open_mut(&device, |_| {}).space().unwrap().free
}

#[test]
fn a_rename_that_was_cut_is_an_error_for_check() {
    let image = volume(512, &[("first", 900), ("second", 900)]);
    let mut found = 0;
    for n in 0.. {
        let device = Recorder::new(&image);
        let fs = open_mut(&device, |_| {});
        let dir = mkdir(&fs, fs.root(), "dir").unwrap();
        fs.sync_all().unwrap();
        fs.rename((fs.root(), b"first"), (dir, b"first"), true)
            .unwrap();
        *device.full_after.lock().unwrap() = Some(n);
        if fs.sync_all().is_ok() {
            break;
        }
        drop(fs);
        let bytes = device.to_vec();
        let said = told(&bytes);
        let way = said
            .iter()
            .any(|said| said.contains("on its way to another sector"));
        // A checker that does not know the pointer finds neither name.
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
