//! Ids that are created and forgotten: the driver drops their state.

use forerun_exfat::Exfat;
use forerun_testkit::children;
use forerun_vfs::{FileSystem, FileSystemMut, NodeId};

use crate::common::{TestDevice, assert_sound, create, list, mkdir, mkfs, open_mut, write};

/// Returns the number of cycles; with `FORERUN_LONG`, enough to show a leak in the memory of the
/// process.
fn cycles() -> u32 {
    let long = std::env::var_os("FORERUN_LONG").is_some();
    if long { 200_000 } else { 20_000 }
}

fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages = statm.split_whitespace().nth(1).unwrap();
    pages.parse::<u64>().unwrap() * 4096
}

/// Creates, renames and removes files like a mount, and returns the ids to forget.
fn cycle(fs: &Exfat, device: &TestDevice, dir: NodeId, n: u32) -> Vec<NodeId> {
    let (one, two) = (format!("file {n}"), format!("other {n}"));
    let file = create(fs, dir, &one).unwrap();
    if n.is_multiple_of(16) {
        write(fs, device, file, 0, &[1; 700]).unwrap();
    }
    fs.open(file).unwrap();
    fs.rename((dir, one.as_bytes()), (dir, two.as_bytes()), true)
        .unwrap();
    let below = mkdir(fs, dir, "below").unwrap();
    let again = create(fs, below, &one).unwrap();
    fs.unlink(below, one.as_bytes()).unwrap();
    fs.rmdir(dir, b"below").unwrap();
    fs.unlink(dir, two.as_bytes()).unwrap();
    fs.release(file).unwrap();
    vec![file, below, again]
}

#[test]
fn ids_that_are_forgotten_are_given_out_again() {
    // This test measures the memory of the process.
    if !children::alone("forgetting::ids_that_are_forgotten_are_given_out_again") {
        return;
    }
    let Some(image) = mkfs(8 << 20, &["-c", "512"]) else {
        return;
    };
    let device = TestDevice::new(&image);
    let fs = open_mut(&device, |_| {});
    let dir = mkdir(&fs, fs.root(), "dir").unwrap();
    let mut first = None;
    let mut before = 0;
    for n in 0..cycles() {
        for id in cycle(&fs, &device, dir, n) {
            fs.forget(id);
        }
        device.take_log();
        if n.is_multiple_of(64) {
            fs.sync_all().unwrap();
            // The id depends on the location, and is not a counter.
            let file = create(&fs, dir, "probe").unwrap();
            assert_eq!(*first.get_or_insert(file), file, "cycle {n}");
            fs.unlink(dir, b"probe").unwrap();
            fs.forget(file);
        }
        if n == cycles() / 4 {
            before = resident();
        }
    }
    let grown = resident().saturating_sub(before);
    assert!(grown < 4 << 20, "{grown} bytes");
    fs.sync_all().unwrap();
    assert_sound(&device.to_vec());
}

#[test]
fn what_is_there_is_found_again_after_its_id_was_forgotten() {
    let Some(image) = mkfs(8 << 20, &["-c", "512"]) else {
        return;
    };
    let device = TestDevice::new(&image);
    let fs = open_mut(&device, |_| {});
    let root = fs.root();
    let (a, b) = (
        mkdir(&fs, root, "a").unwrap(),
        mkdir(&fs, root, "b").unwrap(),
    );
    let held = create(&fs, a, "held").unwrap();
    for n in 0..40 {
        create(&fs, a, &format!("{n}")).unwrap();
    }
    // These directories and entries are at locations that differ from their ids.
    fs.rename((a, b"held"), (b, b"held"), true).unwrap();
    fs.rename((root, b"a"), (b, b"a"), true).unwrap();
    let new = mkdir(&fs, root, "a").unwrap();
    create(&fs, new, "within").unwrap();
    // Changes are pending: some of these ids wait for the commit, and are used before it.
    for id in [a, new, held] {
        fs.forget(id);
    }
    let again = fs.lookup(b, b"a").unwrap().unwrap();
    fs.unlink(again, b"7").unwrap();
    fs.sync_all().unwrap();
    for id in [again, new, b] {
        fs.forget(id);
    }
    let b = fs.lookup(root, b"b").unwrap().unwrap();
    let a = fs.lookup(b, b"a").unwrap().unwrap();
    assert_eq!(list(&fs, a).len(), 39);
    let within = fs.lookup(root, b"a").unwrap().unwrap();
    fs.rename((root, b"a"), (a, b"inner"), true).unwrap();
    assert!(fs.rename((root, b"b"), (within, b"loop"), true).is_err());
    assert!(fs.lookup(within, b"within").unwrap().is_some());
    let held = fs.lookup(b, b"held").unwrap().unwrap();
    write(&fs, &*device, held, 0, &[7; 3000]).unwrap();
    fs.sync_all().unwrap();
    assert_sound(&device.to_vec());
}
