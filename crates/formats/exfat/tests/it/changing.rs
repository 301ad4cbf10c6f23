//! Single changes: their effect on the volume, and the report of `fsck.exfat`.

use forerun_io::MemorySource;
use forerun_testkit::exfat_judge::{What, judge};
use forerun_vfs::{Changes, Error, FileSystem, FileSystemMut, FileType};

use crate::common::{
    self, TestDevice, assert_sound, create, list, mkdir, mkfs, open, open_mut, read, write,
};

#[test]
fn spellings_of_one_name_share_a_form_that_finds_it() {
    let Some(image) = mkfs(8 << 20, &[]) else {
        return;
    };
    let device = TestDevice::new(&image);
    let fs = open_mut(&device, |_| {});
    for (stored, spellings) in [
        ("Photo.jpg", &["photo.JPG", "PHOTO.jpg.."][..]),
        ("\u{E4}\u{1F600}", &["\u{C4}\u{1F600}"]),
    ] {
        let node = create(&fs, fs.root(), stored).unwrap();
        let form = fs.fold_name(stored.as_bytes());
        assert_eq!(fs.lookup(fs.root(), &form).unwrap(), Some(node), "{stored}");
        for spelling in spellings {
            assert_eq!(fs.fold_name(spelling.as_bytes()), form, "{spelling}");
        }
    }
    assert_ne!(fs.fold_name(b"a"), fs.fold_name(b"b"));
}

#[test]
fn files_and_directories_come_and_go() {
    let Some(image) = mkfs(8 << 20, &["-c", "4K", "-L", "label"]) else {
        return;
    };
    let device = TestDevice::new(&image);
    let fs = open_mut(&device, |_| {});
    let root = fs.root();
    assert_eq!(fs.volume().label, b"label");
    let space = fs.space().unwrap();
    let a = create(&fs, root, "a.txt").unwrap();
    assert!(matches!(create(&fs, root, "A.TXT"), Err(Error::Exists)));
    let sub = mkdir(&fs, root, "sub").unwrap();
    write(&fs, &*device, a, 0, &[7; 10_000]).unwrap();
    let b = create(&fs, sub, "b \u{1F600} \u{E4}").unwrap();
    write(&fs, &*device, b, 5000, b"late").unwrap();
    assert_eq!(
        fs.lookup(sub, "B \u{1F600} \u{C4}".as_bytes()).unwrap(),
        Some(b)
    );
    fs.sync_all().unwrap();
    assert_sound(&device.to_vec());

    let again = open(&device.to_vec());
    let root = again.root();
    assert_eq!(list(&again, root).len(), 2);
    let found = again.lookup(root, b"a.txt").unwrap().unwrap();
    assert_eq!(read(&again, &*device, found), [7; 10_000]);
    let sub2 = again.lookup(root, b"SUB").unwrap().unwrap();
    let found = list(&again, sub2)[0].1;
    let mut expected = vec![0; 5000];
    expected.extend(b"late");
    assert_eq!(read(&again, &*device, found), expected);
    assert_eq!(again.metadata(found).unwrap().mtime, common::TIME);

    assert!(matches!(fs.rmdir(root, b"sub"), Err(Error::NotEmpty)));
    assert!(matches!(fs.unlink(root, b"sub"), Err(Error::IsADirectory)));
    assert!(matches!(
        fs.rmdir(root, b"a.txt"),
        Err(Error::NotADirectory)
    ));
    fs.rename(
        (sub, list(&fs, sub)[0].0.as_bytes()),
        (root, b"moved"),
        true,
    )
    .unwrap();
    assert_eq!(fs.lookup(root, b"moved").unwrap(), Some(b));
    assert_eq!(read(&fs, &*device, b), expected);
    fs.rename((root, b"moved"), (root, b"a.txt"), true).unwrap();
    assert_eq!(fs.lookup(root, b"a.txt").unwrap(), Some(b));
    assert!(matches!(fs.metadata(a), Err(Error::StaleNode(_))));
    fs.rmdir(root, b"sub").unwrap();
    fs.sync_all().unwrap();
    assert_sound(&device.to_vec());
    fs.unlink(root, b"a.txt").unwrap();
    fs.sync_all().unwrap();
    assert_sound(&device.to_vec());
    assert!(list(&fs, root).is_empty());
    assert_eq!(fs.space().unwrap(), space);
}

#[test]
fn lengths_go_up_and_down() {
    let Some(image) = mkfs(8 << 20, &["-c", "4K"]) else {
        return;
    };
    let device = TestDevice::new(&image);
    let fs = open_mut(&device, |with| with.dirsync = true);
    let root = fs.root();
    let node = create(&fs, root, "f").unwrap();
    let resize = |size| {
        let changes = Changes {
            size: Some(size),
            ..Changes::default()
        };
        fs.change(node, &changes).map(|m| m.size)
    };
    device.take_log();
    assert_eq!(resize(1 << 20).unwrap(), 1 << 20);
    // Only bitmap and set are written. `VolumeDirty` is set since the file was created.
    let writes = device.take_changes();
    let bytes: u64 = writes
        .iter()
        .map(|request| request.range().count() as u64)
        .sum();
    assert_eq!(bytes, 2 * 512, "{writes:?}");
    assert_eq!(read(&fs, &*device, node), vec![0; 1 << 20]);
    write(&fs, &*device, node, 100, b"x").unwrap();
    resize(101).unwrap();
    resize(5000).unwrap();
    let mut expected = vec![0; 5000];
    expected[100] = b'x';
    assert_eq!(read(&fs, &*device, node), expected);
    assert!(matches!(resize(1 << 30), Err(Error::NoSpace)));
    assert!(matches!(
        fs.allocate(node, 0..10_000, true),
        Err(Error::Unsupported(_))
    ));
    fs.allocate(node, 0..8192, true).unwrap();
    fs.allocate(node, 0..8192, false).unwrap();
    assert_eq!(fs.metadata(node).unwrap().size, 8192);
    resize(0).unwrap();
    fs.sync_all().unwrap();
    assert_sound(&device.to_vec());
}

#[test]
fn attributes_and_times_are_kept() {
    let Some(image) = mkfs(8 << 20, &[]) else {
        return;
    };
    let device = TestDevice::new(&image);
    let fs = open_mut(&device, |with| {
        with.ownership.zone = forerun_vfs::Zone::fixed(330)
    });
    let node = create(&fs, fs.root(), "f").unwrap();
    let time = |seconds| forerun_vfs::Timestamp {
        seconds,
        nanoseconds: 990_000_000,
    };
    let changes = Changes {
        permissions: Some(0o444),
        modified: Some(time(1_600_000_001)),
        accessed: Some(time(1_600_000_000)),
        created: Some(time(1_500_000_001)),
        ..Changes::default()
    };
    let metadata = fs.change(node, &changes).unwrap();
    assert_eq!(
        (metadata.mode, metadata.mtime),
        (0o555, time(1_600_000_001))
    );
    fs.sync_all().unwrap();
    // The entry set already has the location of the data.
    let fs = open(&device.to_vec());
    let node = fs.lookup(fs.root(), b"f").unwrap().unwrap();
    assert_eq!(fs.metadata(node).unwrap().mtime, time(1_600_000_001));
    let usage = fs.usage(node).unwrap();
    assert_eq!(usage.accessed.seconds, 1_600_000_000);
    assert_eq!(usage.created, time(1_500_000_001));
    assert!(matches!(
        create(&fs, fs.root(), "g"),
        Err(Error::ReadOnly(_))
    ));
    assert_sound(&device.to_vec());
}

#[test]
fn files_without_a_name_stay_until_the_last_release() {
    let Some(image) = mkfs(8 << 20, &[]) else {
        return;
    };
    let device = TestDevice::new(&image);
    let fs = open_mut(&device, |with| with.dirsync = true);
    let (root, before) = (fs.root(), fs.space().unwrap());
    let node = create(&fs, root, "f").unwrap();
    write(&fs, &*device, node, 0, &[1; 5000]).unwrap();
    fs.open(node).unwrap();
    fs.open(node).unwrap();
    fs.unlink(root, b"f").unwrap();
    let other = create(&fs, root, "f").unwrap();
    assert_ne!(other, node);
    write(&fs, &*device, other, 0, &[2; 9000]).unwrap();
    write(&fs, &*device, node, 5000, &[3; 5000]).unwrap();
    fs.release(node).unwrap();
    let bytes = read(&fs, &*device, node);
    assert!(bytes[..5000] == [1; 5000] && bytes[5000..] == [3; 5000]);
    assert_eq!(read(&fs, &*device, other), [2; 9000]);
    fs.release(node).unwrap();
    assert!(matches!(fs.metadata(node), Err(Error::StaleNode(_))));
    fs.unlink(root, b"f").unwrap();
    assert_eq!(fs.space().unwrap(), before);
    fs.sync_all().unwrap();
    assert_sound(&device.to_vec());
}

#[test]
fn names_are_renamed_in_case_moved_and_refused() {
    let Some(image) = mkfs(8 << 20, &["-c", "4K"]) else {
        return;
    };
    let device = TestDevice::new(&image);
    let fs = open_mut(&device, |_| {});
    let root = fs.root();
    let node = create(&fs, root, "readme").unwrap();
    fs.rename((root, b"readme"), (root, b"README"), true)
        .unwrap();
    assert_eq!(list(&fs, root)[0].0, "README");
    let (a, b) = (
        mkdir(&fs, root, "a").unwrap(),
        create(&fs, root, "b").unwrap(),
    );
    let below = mkdir(&fs, a, "below").unwrap();
    let into = fs.rename((root, b"a"), (below, b"x"), true);
    assert!(matches!(into, Err(Error::IntoItself)));
    let over = fs.rename((root, b"b"), (root, b"a"), true);
    assert!(matches!(over, Err(Error::IsADirectory)));
    let over = fs.rename((root, b"a"), (root, b"b"), true);
    assert!(matches!(over, Err(Error::NotADirectory)));
    let over = fs.rename((root, b"b"), (root, b"readme"), false);
    assert!(matches!(over, Err(Error::Exists)));
    let long = "l".repeat(255);
    fs.rename((root, b"b"), (below, long.as_bytes()), true)
        .unwrap();
    assert_eq!(
        fs.lookup(below, long.to_uppercase().as_bytes()).unwrap(),
        Some(b)
    );
    assert_eq!(fs.lookup(root, b"ReadMe...").unwrap(), Some(node));
    let made = create(&fs, root, &"n".repeat(256));
    assert!(
        matches!(made, Err(Error::NameTooLong { limit: 255, .. })),
        "{made:?}"
    );
    for name in ["a:b", "x\u{1}", "con?"] {
        let made = create(&fs, root, name);
        assert!(
            matches!(made, Err(Error::InvalidName(_))),
            "{name}: {made:?}"
        );
    }
    fs.rename((below, long.as_bytes()), (root, b"short"), true)
        .unwrap();
    assert_eq!(fs.metadata(b).unwrap().kind, FileType::Regular);
    fs.set_label(b"new label").unwrap();
    fs.sync_all().unwrap();
    assert_sound(&device.to_vec());
    assert_eq!(open(&device.to_vec()).volume().label, b"new label");
}

/// Creates a volume that was not unmounted, with an entry `kind` in the second sector beyond the
/// end of the directory `d`. Returns it with the offset of that entry.
fn with_entry_behind_the_end(image: &[u8], kind: u8) -> (Vec<u8>, usize) {
    let device = TestDevice::new(image);
    let fs = open_mut(&device, |_| {});
    let dir = mkdir(&fs, fs.root(), "d").unwrap();
    create(&fs, dir, "f").unwrap();
    fs.sync_all().unwrap();
    let mut image = device.to_vec();
    let report = judge(&MemorySource::new(image.clone())).unwrap();
    let cluster = report.find("d").unwrap().clusters[0];
    let at = report.geometry.offset(cluster) as usize + 2 * 512;
    image[at..at + 4].copy_from_slice(&[kind, 0, b'x', 0]);
    image[106] |= 2;
    (image, at)
}

#[test]
fn parts_of_sets_behind_the_end_are_cleared_after_a_power_cut() {
    let Some(empty) = mkfs(8 << 20, &["-c", "4K"]) else {
        return;
    };
    for kind in [0xC1, 0xC0, 0x41, 0x05] {
        let (image, _) = with_entry_behind_the_end(&empty, kind);
        let found = judge(&MemorySource::new(image.clone())).unwrap();
        assert!(found.findings.iter().any(|f| f.what == What::BehindEnd));
        let device = TestDevice::new(&image);
        let fs = open_mut(&device, |_| {});
        let dir = fs.lookup(fs.root(), b"d").unwrap().unwrap();
        assert_eq!(list(&fs, dir).len(), 1);
        fs.sync_all().unwrap();
        let found = judge(&MemorySource::new(device.to_vec())).unwrap();
        assert_eq!(found.findings, [], "{kind:#04x}");
    }
}

#[test]
fn a_set_behind_the_end_is_left_to_a_repair() {
    let Some(empty) = mkfs(8 << 20, &["-c", "4K"]) else {
        return;
    };
    let (image, at) = with_entry_behind_the_end(&empty, 0x85);
    let device = TestDevice::new(&image);
    let fs = open_mut(&device, |_| {});
    let dir = fs.lookup(fs.root(), b"d").unwrap().unwrap();
    assert_eq!(list(&fs, dir).len(), 1);
    fs.sync_all().unwrap();
    assert_eq!(device.to_vec()[at], 0x85);
}

#[test]
fn names_that_come_and_go_leave_the_access_time_of_their_directory() {
    let Some(image) = mkfs(8 << 20, &[]) else {
        return;
    };
    let device = TestDevice::new(&image);
    let fs = open_mut(&device, |_| {});
    let dir = mkdir(&fs, fs.root(), "d").unwrap();
    let before = fs.usage(dir).unwrap().accessed;
    assert_eq!(before.seconds, common::TIME.seconds);
    create(&fs, dir, "f").unwrap();
    fs.rename((dir, b"f"), (dir, b"g"), true).unwrap();
    fs.unlink(dir, b"g").unwrap();
    assert_eq!(fs.usage(dir).unwrap().accessed, before);
    // Renamed and removed now, long after the creation of the directory.
    assert!(fs.metadata(dir).unwrap().mtime.seconds > common::TIME.seconds);
}
