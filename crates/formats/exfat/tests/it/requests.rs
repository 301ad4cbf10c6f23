//! Counts the requests of operations to the device.

use forerun_vfs::{Changes, FileSystem, FileSystemMut, NodeId};

use crate::common::{
    Request, TestDevice, assert_sound, create, list, mkdir, mkfs, open, open_mut, write,
};

const ROOT: NodeId = NodeId(1);

fn writes(log: &[Request]) -> Vec<(u64, u64)> {
    let writes = log.iter().filter(|request| request.is_write());
    let writes = writes.map(Request::range);
    writes
        .map(|range| (range.start, range.end - range.start))
        .collect()
}

/// Creates a volume of 128 MiB with clusters of 512 bytes. A file of 16 MiB on it has as many
/// clusters as a file of 4 GiB with clusters of 128 KiB.
fn volume() -> Option<Vec<u8>> {
    mkfs(128 << 20, &["-c", "512"])
}

#[test]
fn a_long_contiguous_file_goes_in_four_writes() {
    let Some(image) = volume() else { return };
    let device = TestDevice::new(&image);
    let fs = open_mut(&device, |with| with.dirsync = true);
    let node = create(&fs, fs.root(), "big").unwrap();
    fs.allocate(node, 0..32_768 * 512, false).unwrap();
    fs.sync_all().unwrap();
    drop(fs);
    let fs = open_mut(&device, |with| with.dirsync = true);
    device.take_log();
    fs.unlink(fs.root(), b"big").unwrap();
    // The removal is already durable; only `VolumeDirty` and the freeing of clusters are pending.
    assert!(list(&open(&device.to_vec()), ROOT).is_empty());
    fs.sync_all().unwrap();
    let log = device.take_log();
    let writes = writes(&log);
    let bytes: u64 = writes.iter().map(|(_, len)| len).sum();
    assert!(writes.len() <= 4, "{writes:?}");
    assert!(bytes <= 6 << 10, "{bytes} bytes: {writes:?}");
    // Opening read the FAT only for the chains of root, bitmap and up-case table.
    let fat = u64::from(u32::from_le_bytes(image[80..84].try_into().unwrap())) * 512;
    let behind = fat + 4096..fat + (256 << 10);
    let read_fat = log
        .iter()
        .any(|request| request.is_read() && request.touches(&behind));
    assert!(!read_fat, "{log:?}");
    drop(fs);
    assert_sound(&device.to_vec());
}

#[test]
fn a_chain_between_two_sectors_writes_each_once() {
    let Some(mut image) = volume() else { return };
    // The chain alternates between clusters of the second and of the fourth bitmap sector.
    let boot = |at: usize| u32::from_le_bytes(image[at..at + 4].try_into().unwrap()) as usize;
    let (fat, heap) = (boot(80) * 512, boot(88) * 512);
    let device = TestDevice::new(&image);
    let fs = open_mut(&device, |_| {});
    let node = create(&fs, fs.root(), "zigzag").unwrap();
    fs.allocate(node, 0..512, false).unwrap();
    fs.sync_all().unwrap();
    image = device.to_vec();
    let set = node.0 as usize * 32;
    let first = u32::from_le_bytes(image[set + 52..set + 56].try_into().unwrap());
    image[heap + (first as usize - 2) / 8] &= !(1 << ((first - 2) % 8));
    let clusters: Vec<usize> = (0..100).flat_map(|n| [5000 + n, 13_000 + n]).collect();
    for (n, &cluster) in clusters.iter().enumerate() {
        let next = clusters.get(n + 1).map_or(u32::MAX, |&next| next as u32);
        image[fat + cluster * 4..fat + cluster * 4 + 4].copy_from_slice(&next.to_le_bytes());
        image[heap + (cluster - 2) / 8] |= 1 << ((cluster - 2) % 8);
    }
    let len = (clusters.len() * 512) as u64;
    image[set + 33] = 1;
    image[set + 40..set + 48].copy_from_slice(&len.to_le_bytes());
    image[set + 52..set + 56].copy_from_slice(&(clusters[0] as u32).to_le_bytes());
    image[set + 56..set + 64].copy_from_slice(&len.to_le_bytes());
    let sum = (0..96)
        .filter(|n| !matches!(n, 2 | 3))
        .fold(0_u16, |sum, n| {
            sum.rotate_right(1).wrapping_add(u16::from(image[set + n]))
        });
    image[set + 2..set + 4].copy_from_slice(&sum.to_le_bytes());
    assert_sound(&image);

    let device = TestDevice::new(&image);
    let fs = open_mut(&device, |with| with.dirsync = true);
    fs.unlink(fs.root(), b"zigzag").unwrap();
    fs.sync_all().unwrap();
    let writes = writes(&device.take_log());
    assert_eq!(writes.len(), 5, "{writes:?}");
    assert!(writes.iter().all(|&(_, len)| len == 512), "{writes:?}");
    drop(fs);
    assert_sound(&device.to_vec());
}

fn flushes(log: &[Request]) -> usize {
    log.iter().filter(|r| **r == Request::Flush).count()
}

/// Counts the requests of each operation with `dirsync`, after `VolumeDirty` is set.
#[test]
fn durable_operations_take_as_few_flushes_as_their_order_allows() {
    let Some(image) = mkfs(32 << 20, &["-c", "4K"]) else {
        return;
    };
    let device = TestDevice::new(&image);
    let fs = open_mut(&device, |with| with.dirsync = true);
    let root = fs.root();
    let first = create(&fs, root, "first").unwrap();
    let taken = |expected: (usize, usize), what: &str| {
        let log = device.take_log();
        assert_eq!(
            (writes(&log).len(), flushes(&log)),
            expected,
            "{what}: {log:?}"
        );
    };
    taken((2, 2), "VolumeDirty and a set");
    create(&fs, root, "second").unwrap();
    taken((1, 1), "create");
    let dir = mkdir(&fs, root, "dir").unwrap();
    taken((3, 2), "mkdir: bitmap and a cluster of zeros, then the set");
    let mut nodes = Vec::new();
    for n in 0..50 {
        nodes.push(create(&fs, dir, &format!("file {n}")).unwrap());
    }
    device.take_log();
    for &node in &nodes {
        write(&fs, &*device, node, 0, &[1; 5000]).unwrap();
    }
    assert!(
        writes(&device.take_log())
            .iter()
            .all(|&(_, len)| len == 5000)
    );
    fs.sync(first).unwrap();
    // One flush after data and bitmap, one after the sets of the directory.
    assert_eq!(flushes(&device.take_log()), 2);
    for n in 0..50 {
        fs.unlink(dir, format!("file {n}").as_bytes()).unwrap();
    }
    let log = device.take_log();
    // The new set, the directory's own set in its parent, and the bitmap of the previous removal.
    assert_eq!(flushes(&log), 50, "{log:?}");
    assert!(writes(&log).len() <= 150, "{log:?}");
    fs.rename((root, b"first"), (root, b"other"), true).unwrap();
    taken(
        (2, 1),
        "rename within a sector, and the bitmap of the last removal",
    );
    fs.rename((root, b"other"), (dir, b"other"), true).unwrap();
    assert_eq!(
        flushes(&device.take_log()),
        3,
        "old place, new place, old place forgotten"
    );
    fs.unlink(dir, b"other").unwrap();
    device.take_log();
    fs.rmdir(root, b"dir").unwrap();
    taken((1, 1), "rmdir");
    fs.sync_all().unwrap();
    taken((2, 2), "bitmap, VolumeDirty");
    assert_sound(&device.to_vec());
}

#[test]
fn many_changes_are_one_write_a_sector() {
    let Some(image) = mkfs(32 << 20, &["-c", "32K"]) else {
        return;
    };
    let device = TestDevice::new(&image);
    let fs = open_mut(&device, |_| {});
    let root = fs.root();
    for n in 0..100 {
        let node = create(&fs, root, &format!("file {n}")).unwrap();
        let changes = Changes {
            size: Some(40_000),
            ..Changes::default()
        };
        fs.change(node, &changes).unwrap();
    }
    assert!(writes(&device.take_log()).is_empty());
    fs.sync_all().unwrap();
    let log = device.take_log();
    // `VolumeDirty`, the bitmap, the directory in one write, `VolumeDirty`.
    assert_eq!(writes(&log).len(), 4, "{log:?}");
    fs.sync_all().unwrap();
    assert_eq!(device.take_changes(), []);
    assert_sound(&device.to_vec());
}

#[test]
fn a_directory_of_many_names() {
    let Some(image) = mkfs(128 << 20, &["-c", "32K"]) else {
        return;
    };
    let device = TestDevice::new(&image);
    let fs = open_mut(&device, |_| {});
    let dir = mkdir(&fs, fs.root(), "dir").unwrap();
    let name = |n: u32| format!("IMG_{n:06}.jpg");
    for n in 0..130_000 {
        create(&fs, dir, &name(n)).unwrap();
    }
    fs.sync_all().unwrap();
    drop(fs);
    let fs = open_mut(&device, |with| with.limits.dir_index_bytes = 1 << 20);
    let dir = fs.lookup(fs.root(), b"DIR").unwrap().unwrap();
    device.take_log();
    for n in (0..130_000).step_by(7) {
        let name = name(n).to_lowercase();
        assert!(fs.lookup(dir, name.as_bytes()).unwrap().is_some(), "{name}");
        assert!(
            fs.lookup(dir, format!("x{name}").as_bytes())
                .unwrap()
                .is_none()
        );
    }
    // One pass of large reads fetched the directory of 12 MiB.
    let reads = device
        .take_log()
        .iter()
        .filter(|request| request.is_read())
        .count();
    assert!(reads < 600, "{reads} reads");
    for n in (0..130_000).step_by(2) {
        fs.unlink(dir, name(n).as_bytes()).unwrap();
    }
    // New names reuse the freed slots.
    let before = fs.metadata(dir).unwrap().size;
    for n in 0..50_000 {
        create(&fs, dir, &name(200_000 + n)).unwrap();
    }
    assert_eq!(fs.metadata(dir).unwrap().size, before);
    assert_eq!(list(&fs, dir).len(), 115_000);
    fs.sync_all().unwrap();
    assert_sound(&device.to_vec());
}
