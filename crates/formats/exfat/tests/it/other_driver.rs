//! Tests against Debian's exfat-fuse, in both directions: it fills volumes that forerun reads, and
//! reads volumes that forerun wrote.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use forerun_testkit::conformance::check_filesystem;
use forerun_testkit::{Mounted, require, temp_dir};
use forerun_vfs::{FileSystem, FileSystemMut, FileType, Limits, NodeId};

use crate::common::{
    TestDevice, assert_sound, create, fsck, list, mkdir, mkfs, open, open_mut, problems, read,
    write,
};

/// Mounts an image with exfat-fuse while `run` uses it. Returns the changed image, or `None` if the
/// machine cannot mount it.
fn mounted(image: &[u8], run: impl FnOnce(&Path)) -> Option<Vec<u8>> {
    if !require::root() || !require::fuse() {
        return None;
    }
    require::program("mount.exfat-fuse")?;
    let dir = temp_dir("exfat-fuse");
    let (path, mount) = (dir.path().join("image"), dir.path().join("mount"));
    fs::write(&path, image).unwrap();
    let mounted = Mounted::exfat_fuse(&path, mount.clone(), "rw", &[]);
    run(&mount);
    drop(mounted);
    Some(fs::read(&path).unwrap())
}

fn contents(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 % 251) as u8 + 1).collect()
}

fn expected() -> BTreeMap<String, usize> {
    let mut files: BTreeMap<String, usize> = [0, 1, 511, 512, 513, 4096, 100_000]
        .map(|len| (format!("file {len}"), len))
        .into();
    files.insert("n".repeat(230), 5);
    files.insert("\u{E4}\u{20AC}\u{1F600}".into(), 6);
    files.extend((0..200).map(|n| (format!("many/number {n}"), n)));
    files
}

fn found(
    fs: &dyn FileSystem,
    image: &TestDevice,
    dir: NodeId,
    at: &str,
) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for (name, node, kind) in list(fs, dir) {
        let path = format!("{at}{name}");
        match kind {
            FileType::Directory => files.extend(found(fs, image, node, &format!("{path}/"))),
            _ => {
                files.insert(path, read(fs, image, node));
            }
        }
    }
    files
}

#[test]
fn it_fills_volumes_that_we_read_and_change() {
    for cluster in ["512", "4K", "64K"] {
        let Some(image) = mkfs(32 << 20, &["-c", cluster]) else {
            return;
        };
        let filled = mounted(&image, |mount| {
            fs::create_dir(mount.join("many")).unwrap();
            for (path, len) in expected() {
                fs::write(mount.join(path), contents(len)).unwrap();
            }
            fs::write(mount.join("gone"), contents(50_000)).unwrap();
            fs::remove_file(mount.join("gone")).unwrap();
        });
        let Some(filled) = filled else { return };
        assert_eq!(fsck(&filled), None);
        let volume = open(&filled);
        check_filesystem(&volume, &Limits::default());
        let fatal: Vec<_> = problems(&volume);
        assert!(fatal.is_empty(), "{fatal:?}");
        let seen = found(&volume, &TestDevice::new(&filled), volume.root(), "");
        let expected = expected();
        assert!(seen.keys().eq(expected.keys()), "{:?}", seen.keys());
        assert!(
            seen.iter()
                .all(|(path, bytes)| *bytes == contents(expected[path]))
        );

        // Sets written by exfat-fuse may cross sectors. The test changes and removes all of them.
        let device = TestDevice::new(&filled);
        let volume = open_mut(&device, |_| {});
        let many = volume.lookup(volume.root(), b"many").unwrap().unwrap();
        for (n, (name, node, _)) in list(&volume, many).into_iter().enumerate() {
            match n % 3 {
                0 => write(&volume, &*device, node, 300, b"changed").unwrap(),
                1 => volume.unlink(many, name.as_bytes()).unwrap(),
                _ => {
                    let to = format!("{name} has another name now");
                    let from = (many, name.as_bytes());
                    volume
                        .rename(from, (volume.root(), to.as_bytes()), true)
                        .unwrap();
                }
            }
        }
        volume.sync_all().unwrap();
        assert_sound(&device.to_vec());
        assert_eq!(list(&open(&device.to_vec()), many).len(), 67);
    }
}

#[test]
fn it_reads_what_we_write() {
    for cluster in ["512", "4K"] {
        let Some(image) = mkfs(32 << 20, &["-c", cluster]) else {
            return;
        };
        let device = TestDevice::new(&image);
        let volume = open_mut(&device, |_| {});
        let root = volume.root();
        let many = mkdir(&volume, root, "many").unwrap();
        // Writes two files alternately, so that both are fragmented.
        let names: Vec<_> = expected().into_iter().collect();
        for pair in names.chunks(2) {
            let nodes: Vec<_> = pair
                .iter()
                .map(|(path, len)| {
                    let (dir, name) = match path.strip_prefix("many/") {
                        Some(name) => (many, name),
                        None => (root, &path[..]),
                    };
                    (create(&volume, dir, name).unwrap(), contents(*len))
                })
                .collect();
            for at in (0..100_000).step_by(3000) {
                for (node, bytes) in &nodes {
                    let end = bytes.len().min(at + 3000);
                    if at < end {
                        write(&volume, &*device, *node, at as u64, &bytes[at..end]).unwrap();
                    }
                }
            }
        }
        volume.sync_all().unwrap();
        assert_sound(&device.to_vec());
        mounted(&device.to_vec(), |mount| {
            for (path, len) in expected() {
                assert_eq!(
                    fs::read(mount.join(&path)).unwrap(),
                    contents(len),
                    "{path}"
                );
            }
        });
    }
}
