//! Host trees, images that mkfs.erofs makes of them, and readers of those images.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use forerun_engine::{EngineOptions, MetadataSource, Reader};
use forerun_erofs::Erofs;
use forerun_io::{BlobId, Counted, FileSource, Limits, Observer, ReadAt};
pub use forerun_testkit::everything::{Xattrs, image_xattrs, run, xattrs_of};
use forerun_testkit::rng::Rng;
use forerun_testkit::{TempDir, TreeModel, generate, memory_dir, require, temp_dir};
use forerun_vfs::{BlobName, OpenBlobs, OpenWith, ResolveBlob};
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, mknodat, utimensat};

pub struct Sample {
    /// In memory, because there are many trees and they are soon deleted.
    files: TempDir,
    /// On disk, because Linux cannot mount an image file that is in memory.
    pub dir: TempDir,
    pub model: TreeModel,
    pub xattrs: Xattrs,
}

impl Sample {
    /// Creates a sample. Returns `None` if mkfs.erofs or root is missing.
    pub fn new(populate: impl FnOnce(&Path)) -> Option<Self> {
        if !require::root() || require::program("mkfs.erofs").is_none() {
            return None;
        }
        let dir = temp_dir("erofs-reading");
        let files = memory_dir("erofs-reading", 1 << 30);
        let tree = files.path().join("tree");
        fs::create_dir(&tree).unwrap();
        populate(&tree);
        let model = TreeModel::of_host(&tree).unwrap();
        let xattrs = xattrs_of(&tree, &model);
        Some(Self {
            files,
            dir,
            model,
            xattrs,
        })
    }

    pub fn tree(&self) -> PathBuf {
        self.files.path().join("tree")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn make(&self, options: &[&str]) -> PathBuf {
        let image = self.path("image");
        let _left_by_the_last = fs::remove_file(&image);
        let mut command = Command::new("mkfs.erofs");
        command
            .arg("--quiet")
            .args(options)
            .arg(&image)
            .arg(self.tree());
        run(&mut command);
        image
    }
}

/// Opens an image through the engine, with its devices.
pub fn reader(image: &Path, devices: &[PathBuf]) -> Reader {
    let source: Arc<dyn ReadAt> = Arc::new(FileSource::open(image).unwrap());
    let observer = Arc::new(Observer::default());
    let counted = Counted::new(Arc::clone(&source), BlobId::IMAGE, Arc::clone(&observer));
    let options = EngineOptions {
        threads: 1,
        ..EngineOptions::default()
    };
    let geometry = options.geometry(source.len());
    let metadata = Arc::new(MetadataSource::new(counted.clone(), geometry, 32 << 20));
    let with = OpenWith {
        observer,
        blobs: OpenBlobs {
            resolve: Arc::new(Devices(devices.to_vec())),
            ..OpenBlobs::default()
        },
        ..OpenWith::new(Arc::<MetadataSource>::clone(&metadata))
    };
    let fs = Arc::new(Erofs::open(with).unwrap());
    Reader::new(fs, counted, metadata, options, Limits::default())
}

/// Files in the order of the device table.
pub struct Devices(pub Vec<PathBuf>);

impl ResolveBlob for Devices {
    fn open(&self, blob: &BlobName) -> io::Result<Arc<dyn ReadAt>> {
        let BlobName::Device { index, .. } = blob else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let path = self.0.get(*index as usize - 1);
        let path = path.ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(FileSource::open(path)?))
    }
}

pub fn model_of(reader: &Reader) -> TreeModel {
    TreeModel::of_reader(reader.fs(), |node, offset, out| {
        reader.read_into(node, offset, out)
    })
    .unwrap()
}

pub fn everything(dir: &Path) {
    nodes(dir);
    sizes(&dir.join("sizes"));
    sparse(&dir.join("sparse"));
    with_xattrs(&dir.join("xattrs"));
    fs::create_dir(dir.join("many")).unwrap();
    for n in 0..500_u16 {
        let name = format!("{n}-{}", "x".repeat(usize::from(n) % 60));
        fs::write(dir.join("many").join(name), n.to_le_bytes()).unwrap();
    }
    times(dir);
}

fn nodes(dir: &Path) {
    fs::create_dir(dir.join("empty dir")).unwrap();
    fs::write(dir.join("empty"), "").unwrap();
    fs::write(dir.join("secret"), "none may read this").unwrap();
    fs::create_dir_all(dir.join("a/b/c/d")).unwrap();
    fs::write(dir.join("a/b/c/d/deep"), "deep").unwrap();
    // mkfs.erofs 1.5 fails with names of 255 bytes.
    fs::write(dir.join("n".repeat(254)), "a long name").unwrap();
    fs::write(dir.join(OsStr::from_bytes(b"not \xff UTF-8\n")), "x").unwrap();
    // Names that sort before and after `.` and `..`.
    for name in ["!", "-", "...", ".hidden", "..a"] {
        fs::write(dir.join(name), name).unwrap();
    }
    symlink("a/b/c", dir.join("link")).unwrap();
    symlink("x/".repeat(2047) + "y", dir.join("a/long link")).unwrap();
    for (name, kind, major, minor) in [
        ("null", FileType::CharacterDevice, 1, 3),
        ("far", FileType::BlockDevice, 4095, 1_048_575),
        ("whiteout", FileType::CharacterDevice, 0, 0),
        ("fifo", FileType::Fifo, 0, 0),
        ("socket", FileType::Socket, 0, 0),
    ] {
        let device = rustix::fs::makedev(major, minor);
        mknodat(CWD, dir.join(name), kind, Mode::from(0o640), device).unwrap();
    }
    fs::hard_link(dir.join("a/b/c/d/deep"), dir.join("also deep")).unwrap();
    fs::hard_link(dir.join("null"), dir.join("a/null too")).unwrap();
    fs::write(dir.join("setuid"), "#!/bin/sh\n").unwrap();
    chown(dir.join("setuid"), Some(1000), Some(65534)).unwrap();
    chown(dir.join("a"), Some(4_294_967_294), Some(70_000)).unwrap();
    lchown(dir.join("link"), Some(7), Some(8)).unwrap();
    for (name, mode) in [("setuid", 0o6751), ("secret", 0), ("a/b", 0o1777)] {
        fs::set_permissions(dir.join(name), Permissions::from_mode(mode)).unwrap();
    }
}

/// Creates files with lengths around the boundaries of blocks and clusters, compressible and not.
fn sizes(dir: &Path) {
    fs::create_dir(dir).unwrap();
    for len in [
        1, 511, 512, 513, 4095, 4096, 4097, 8192, 65_535, 65_537, 300_001, 1_500_000,
    ] {
        let text = generate::bytes(len as u64, len);
        fs::write(dir.join(format!("{len}")), &text).unwrap();
        let mut rng = Rng::new(len as u64);
        let noise: Vec<u8> = (0..len).map(|_| rng.next_u64() as u8).collect();
        fs::write(dir.join(format!("{len} noise")), &noise).unwrap();
        // A mix of both, with runs of one byte.
        let mixed: Vec<u8> = (0..len)
            .map(|at| match at / 9000 % 3 {
                0 => text[at],
                1 => noise[at],
                _ => b'z',
            })
            .collect();
        fs::write(dir.join(format!("{len} mixed")), mixed).unwrap();
    }
}

fn sparse(dir: &Path) {
    fs::create_dir(dir).unwrap();
    for (name, len, data) in [
        ("all", 3_000_000, &[][..]),
        ("start", 2_500_001, &[2_500_000]),
        ("middle", 3_000_000, &[0, 1_000_000, 2_999_000]),
        ("end", 2_500_000, &[0]),
    ] {
        let file = File::create(dir.join(name)).unwrap();
        file.set_len(len).unwrap();
        for &at in data {
            file.write_all_at(b"x", at).unwrap();
        }
    }
}

fn with_xattrs(dir: &Path) {
    fs::create_dir(dir).unwrap();
    let long = generate::bytes(5, 2000);
    for n in 0..40_u32 {
        let path = dir.join(format!("file {n}"));
        fs::write(&path, "x").unwrap();
        let own = n.to_string();
        let own = if n % 2 == 0 { "shared" } else { &own };
        xattr::set(&path, "user.own", own.as_bytes()).unwrap();
        xattr::set(&path, "user.none", b"").unwrap();
        xattr::set(&path, "trusted.overlay.origin", b"").unwrap();
        if n % 8 == 0 {
            xattr::set(&path, "user.long", &long).unwrap();
        }
    }
    xattr::set(dir, "user.on a directory", b"value").unwrap();
    let acl = dir.join("file 1");
    xattr::set(&acl, "system.posix_acl_access", &ACL).unwrap();
    xattr::set(dir, "system.posix_acl_default", &ACL).unwrap();
    xattr::set(dir.join("file 0"), "security.capability", &CAPABILITY).unwrap();
    symlink("nowhere", dir.join("link")).unwrap();
    xattr::set(dir.join("link"), "trusted.on a link", b"1").unwrap();
    fs::hard_link(dir.join("file 1"), dir.join("linked")).unwrap();
}

/// `cap_net_raw+ep`, as version 2 of the attribute stores it.
const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// `user::rw-,user:1000:r--,group::r--,mask::r--,other::---`.
const ACL: [u8; 44] = [
    2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 2, 0, 4, 0, 232, 3, 0, 0, 4, 0, 4, 0, 255, 255,
    255, 255, 16, 0, 4, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255,
];

/// Sets times. Must come last, because all other changes modify them.
fn times(dir: &Path) {
    for (path, seconds, nanoseconds) in [
        ("empty", 0, 0),
        ("setuid", 1, 999_999_999),
        ("link", 0x7fff_ffff, 1),
        ("secret", 0x1_8000_0000, 0),
        ("a/b", -1_000_000, 5),
        ("", 1_600_000_000, 123_456_789),
    ] {
        let time = Timespec {
            tv_sec: seconds,
            tv_nsec: nanoseconds,
        };
        let times = Timestamps {
            last_access: time,
            last_modification: time,
        };
        utimensat(CWD, dir.join(path), &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
}
