//! Volumes of unusual geometry: beyond 2 TiB, large sectors and clusters, two FATs.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use forerun_build::Tree;
use forerun_exfat::Exfat;
use forerun_exfat::write::{ExfatOptions, write as pack};
use forerun_io::{BlockDevice, FileDevice, FileSource, MemoryDevice, MemorySource};
use forerun_testkit::{require, temp_dir};
use forerun_vfs::{Error, FileSystem, FileSystemMut, OpenMutWith, OpenWith};

use crate::common::{self, create, fsck_path, list, mkdir, mkfs, problems, read, write};

const TIB: u64 = 1 << 40;

fn open(device: Arc<dyn BlockDevice>) -> Exfat {
    Exfat::open_mut(OpenMutWith::new(device)).unwrap()
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n % 251) as u8 + 1).collect()
}

/// Fills the volume except for the last `tail` bytes, then uses the clusters in these.
fn use_the_end(path: &Path, tail: u64) {
    let device: Arc<dyn BlockDevice> = Arc::new(FileDevice::open(path).unwrap());
    let fs = open(Arc::clone(&device));
    let root = fs.root();
    let space = fs.space().unwrap();
    let block = u64::from(space.block_size);
    let filler = create(&fs, root, "filler").unwrap();
    let len = (space.free - tail / block) * block;
    fs.allocate(filler, 0..len, false).unwrap();
    let dir = mkdir(&fs, root, "at the end").unwrap();
    let (a, b) = (
        create(&fs, dir, "a").unwrap(),
        create(&fs, dir, "b").unwrap(),
    );
    let bytes = pattern(9000);
    for n in 0..3 {
        for node in [a, b] {
            write(&fs, &*device, node, n * block, &bytes).unwrap();
        }
    }
    fs.sync_all().unwrap();
    drop(fs);
    assert_eq!(fsck_path(path), None);
    let source = Arc::new(FileSource::open(path).unwrap());
    let fs = Exfat::open(OpenWith::new(source)).unwrap();
    assert!(problems(&fs).is_empty());
    let dir = fs.lookup(root, b"at the end").unwrap().unwrap();
    for name in [b"a", b"b"] {
        let node = fs.lookup(dir, name).unwrap().unwrap();
        let mut places = Vec::new();
        fs.map(node, 2 * block..2 * block + 9000, &mut |extent| {
            places.push(extent.place);
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
        let [forerun_vfs::Place::Stored { offset, .. }] = places[..] else {
            panic!("{places:?}");
        };
        assert!(
            offset > path.metadata().unwrap().len() - 2 * tail,
            "{offset}"
        );
        let mut found = vec![0; 9000];
        forerun_io::ReadAt::read_exact_at(&*device, offset, &mut found).unwrap();
        assert!(found == bytes);
    }
    drop(fs);
    let fs = open(device);
    fs.unlink(root, b"filler").unwrap();
    fs.unlink(dir, b"a").unwrap();
    fs.sync_all().unwrap();
    assert_eq!(fs.space().unwrap().free + 1 + 3, space.free);
    assert_eq!(fsck_path(path), None);
}

#[test]
fn volumes_beyond_2_tib() {
    let Some(program) = require::program("mkfs.exfat") else {
        return;
    };
    let dir = temp_dir("exfat-large");
    // Clusters of 32 MiB, and 25 million clusters of 128 KiB.
    for (len, cluster) in [(8 * TIB, "32M"), (3 * TIB + TIB / 8, "128K")] {
        let path = dir.path().join(cluster);
        File::create(&path).unwrap().set_len(len).unwrap();
        let mut mkfs = Command::new(&program);
        let output = mkfs.args(["-c", cluster]).arg(&path).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        use_the_end(&path, 512 << 20);
        std::fs::remove_file(&path).unwrap();
    }
    let path = dir.path().join("ours");
    let options = ExfatOptions {
        size: Some(5 * TIB),
        sector_size: 4096,
        cluster_size: Some(1 << 20),
        ..ExfatOptions::default()
    };
    let mut image = File::create(&path).unwrap();
    pack(&Tree::default(), &options, &mut image, &Arc::default()).unwrap();
    drop(image);
    use_the_end(&path, 64 << 20);
}

/// Checks sectors of 4 KiB: sets do not cross them, on a device with such sectors and on one with
/// smaller ones.
#[test]
fn large_sectors() {
    for device_sector in [512, 4096] {
        let options = ExfatOptions {
            size: Some(64 << 20),
            sector_size: 4096,
            cluster_size: Some(4096),
            ..ExfatOptions::default()
        };
        let mut image = Vec::new();
        pack(&Tree::default(), &options, &mut image, &Arc::default()).unwrap();
        let device = Arc::new(MemoryDevice::with_sector_size(image, device_sector));
        let fs = open(Arc::<MemoryDevice>::clone(&device));
        let root = fs.root();
        for n in 0..500 {
            let node = create(&fs, root, &format!("a file with a name {n}")).unwrap();
            write(&fs, &*device, node, 0, &pattern(n * 17)).unwrap();
        }
        for n in (0..500).step_by(3) {
            fs.unlink(root, format!("A FILE WITH A NAME {n}").as_bytes())
                .unwrap();
        }
        fs.sync_all().unwrap();
        common::assert_sound(&device.to_vec());
        let image = MemorySource::new(device.to_vec());
        for (name, node, _) in list(&fs, root) {
            let n: usize = name.rsplit_once(' ').unwrap().1.parse().unwrap();
            assert!(read(&fs, &image, node) == pattern(n * 17), "{name}");
        }
    }
}

/// Creates a TexFAT volume, with a second FAT and a second bitmap. Either may be active.
fn texfat(second: bool) -> Option<Vec<u8>> {
    let mut image = mkfs(16 << 20, &["-c", "4K", "-b", "1M"])?;
    let number = |image: &[u8], at: usize| {
        u32::from_le_bytes(image[at..at + 4].try_into().unwrap()) as usize
    };
    // Creates files for the reader to find.
    let device = Arc::new(MemoryDevice::new(image));
    let fs = open(Arc::<MemoryDevice>::clone(&device));
    let (a, b) = (
        create(&fs, fs.root(), "a").unwrap(),
        create(&fs, fs.root(), "b").unwrap(),
    );
    for n in 0..3 {
        for node in [a, b] {
            write(&fs, &*device, node, n * 4096, &pattern(4096)).unwrap();
        }
    }
    fs.sync_all().unwrap();
    let free = fs.space().unwrap().free;
    drop(fs);
    image = device.to_vec();
    let (fat, len, heap) = (
        number(&image, 80) * 512,
        number(&image, 84) * 512,
        number(&image, 88) * 512,
    );
    assert!(fat + 2 * len <= heap, "no room for a second FAT");
    image.copy_within(fat..fat + len, fat + len);
    if second {
        // The contents of the inactive FAT do not matter.
        image[fat + 20..fat + len].fill(0);
    }
    // The second bitmap is in the last cluster, and marks that cluster used.
    let clusters = number(&image, 92);
    let bits = clusters.div_ceil(8);
    let last = clusters + 1;
    image[heap + (last - 2) / 8] |= 1 << ((last - 2) % 8);
    image.copy_within(heap..heap + bits, heap + (last - 2) * 4096);
    let root = heap + (number(&image, 96) - 2) * 4096;
    let entries = (0..128).map(|slot| root + slot * 32);
    let free_slot = entries
        .clone()
        .find(|&at| image[at] < 0x80 && image[at] > 0 || image[at] == 0);
    let bitmap = entries.clone().find(|&at| image[at] == 0x81).unwrap();
    let at = free_slot.unwrap();
    image.copy_within(bitmap..bitmap + 32, at);
    image[at + 1] = 1;
    image[at + 20..at + 24].copy_from_slice(&(last as u32).to_le_bytes());
    for region in [0, 12 * 512] {
        image[region + 110] = 2;
        image[region + 106] = u8::from(second);
        let mut sum = 0_u32;
        for n in 0..11 * 512 {
            if !matches!(n, 106 | 107 | 112) {
                sum = sum.rotate_right(1).wrapping_add(image[region + n].into());
            }
        }
        for n in 0..128 {
            let at = region + 11 * 512 + n * 4;
            image[at..at + 4].copy_from_slice(&sum.to_le_bytes());
        }
    }
    let fs = common::open(&image);
    assert_eq!(fs.space_of(), free - 1);
    Some(image)
}

trait SpaceOf {
    fn space_of(&self) -> u64;
}

impl SpaceOf for Exfat {
    fn space_of(&self) -> u64 {
        FileSystemMut::space(self).unwrap().free
    }
}

#[test]
fn two_fats_are_read_and_not_changed() {
    for second in [false, true] {
        let Some(image) = texfat(second) else { return };
        let fs = common::open(&image);
        let source = MemorySource::new(&image[..]);
        for name in [b"a", b"b"] {
            let node = fs.lookup(fs.root(), name).unwrap().unwrap();
            assert!(read(&fs, &source, node) == pattern(4096).repeat(3));
        }
        let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(image));
        let refused = Exfat::open_mut(OpenMutWith::new(device)).err().unwrap();
        assert!(matches!(refused, Error::ReadOnly(_)), "{refused}");
    }
}
