//! A tree with everything that a Unix filesystem can contain, for tests of writers.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, chown, lchown, symlink};
use std::path::Path;
use std::process::Command;

use forerun_vfs::{FileSystem, Limits, Walk};
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, mknodat, utimensat};

use crate::machine_code::Machine;
use crate::{TreeModel, children, generate};

/// Fills a directory with every kind of node and contents. Needs root.
pub fn everything(dir: &Path) {
    nodes(dir);
    sizes(&dir.join("sizes"));
    twins(&dir.join("twins"));
    sparse(&dir.join("sparse"));
    xattrs(&dir.join("xattrs"));
    fs::create_dir(dir.join("many")).unwrap();
    for n in 0..300_u16 {
        let name = format!("{n}-{}", "x".repeat(usize::from(n) % 60));
        fs::write(dir.join("many").join(name), n.to_le_bytes()).unwrap();
    }
    times(dir);
}

/// Fills a directory with nodes and attributes of all kinds in 2 MB, for tests that make many
/// images of it. The contents are hard for encoders and layouts: code of each machine at all
/// alignments, random bytes, holes, equal files, lengths around that of a block, empty files. Needs
/// root.
pub fn small(dir: &Path) {
    nodes(dir);
    xattrs(&dir.join("xattrs"));
    let write = |name: String, bytes: &[u8]| fs::write(dir.join(name), bytes).unwrap();
    for (n, &machine) in Machine::ALL.iter().enumerate() {
        for shift in 0..16 {
            let code = machine.code(1500 + 500 * shift + n, shift);
            write(format!("{} at {shift}", machine.name()), &code);
        }
        // More than a block of the default size.
        write(machine.name().to_string(), &machine.code(140_000 + n, 0));
    }
    for len in [1, 4095, 4096, 4097, 8192, 70_000] {
        let bytes = generate::bytes(u64::try_from(len).unwrap(), len);
        write(format!("bytes {len}"), &bytes);
        write(format!("twin of {len}"), &bytes);
    }
    write("noise".to_string(), &noise(50_000));
    write("noise in a hole".to_string(), &{
        let mut bytes = vec![0; 300_000];
        bytes[135_000..147_000].copy_from_slice(&noise(12_000));
        bytes
    });
    for (name, len, at) in [
        ("a hole", 200_000, None),
        ("a hole of whole blocks", 262_144, None),
        ("a hole before the end", 200_001, Some(200_000)),
    ] {
        let file = File::create(dir.join(name)).unwrap();
        file.set_len(len).unwrap();
        if let Some(at) = at {
            file.write_all_at(b"x", at).unwrap();
        }
    }
    times(dir);
}

fn nodes(dir: &Path) {
    fs::create_dir(dir.join("empty dir")).unwrap();
    fs::write(dir.join("empty"), "").unwrap();
    fs::write(dir.join("setuid"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(dir.join("setuid"), Permissions::from_mode(0o6751)).unwrap();
    fs::write(dir.join("secret"), "none may read this").unwrap();
    fs::set_permissions(dir.join("secret"), Permissions::from_mode(0o000)).unwrap();
    fs::create_dir_all(dir.join("a/b/c/d")).unwrap();
    fs::set_permissions(dir.join("a/b"), Permissions::from_mode(0o1777)).unwrap();
    fs::write(dir.join("a/b/c/d/deep"), "deep").unwrap();
    fs::write(dir.join("n".repeat(255)), "a long name").unwrap();
    fs::create_dir(dir.join("d".repeat(255))).unwrap();
    fs::write(dir.join(OsStr::from_bytes(b"not \xff UTF-8\n")), "x").unwrap();
    symlink("a/b/c", dir.join("link")).unwrap();
    symlink("x/".repeat(2047) + "y", dir.join("a/long link")).unwrap();
    for (name, kind, major, minor) in [
        ("null", FileType::CharacterDevice, 1, 3),
        ("sda", FileType::BlockDevice, 8, 0),
        ("far", FileType::BlockDevice, 4095, 1_048_575),
        ("minor", FileType::CharacterDevice, 259, 70_000),
        ("fifo", FileType::Fifo, 0, 0),
        ("socket", FileType::Socket, 0, 0),
    ] {
        let device = rustix::fs::makedev(major, minor);
        mknodat(CWD, dir.join(name), kind, Mode::from(0o640), device).unwrap();
    }
    fs::hard_link(dir.join("a/b/c/d/deep"), dir.join("also deep")).unwrap();
    fs::hard_link(dir.join("a/b/c/d/deep"), dir.join("z")).unwrap();
    fs::hard_link(dir.join("null"), dir.join("a/null too")).unwrap();
    fs::hard_link(dir.join("fifo"), dir.join("a/fifo too")).unwrap();
    fs::hard_link(dir.join("link"), dir.join("a/link too")).unwrap();
    chown(dir.join("setuid"), Some(1000), Some(65534)).unwrap();
    fs::set_permissions(dir.join("setuid"), Permissions::from_mode(0o6751)).unwrap();
    chown(dir.join("a"), Some(4_294_967_294), Some(70_000)).unwrap();
    lchown(dir.join("link"), Some(7), Some(8)).unwrap();
}

/// Creates files with lengths around the boundaries of blocks of every tested size.
fn sizes(dir: &Path) {
    fs::create_dir(dir).unwrap();
    let around = |block: usize| [block - 1, block, block + 1];
    let lens = [4096, 8192, 131_072, 262_144, 1_048_576].map(around);
    for len in lens.into_iter().flatten() {
        fs::write(
            dir.join(len.to_string()),
            generate::bytes(u64::try_from(len).unwrap(), len),
        )
        .unwrap();
    }
    fs::write(dir.join("noise"), noise(200_000)).unwrap();
}

/// Returns bytes that no codec can shorten.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        state.to_be_bytes()[0]
    };
    (0..len).map(|_| next()).collect()
}

/// Creates files with equal contents, and files whose contents start alike.
fn twins(dir: &Path) {
    fs::create_dir(dir).unwrap();
    for len in [100, 5000, 300_000, 1_100_000] {
        let bytes = generate::bytes(77, len);
        let write = |name: &str, bytes: &[u8]| {
            fs::write(dir.join(format!("{len} {name}")), bytes).unwrap();
        };
        write("a", &bytes);
        write("b, the same", &bytes);
        let mut other = bytes.clone();
        other[len - 1] ^= 1;
        write("c, the last byte differs", &other);
        other = bytes.clone();
        other[0] ^= 1;
        write("d, the first byte differs", &other);
        write("e, the same", &bytes);
        write("f, shorter", &bytes[1..]);
        other = bytes;
        other[len - 1] ^= 1;
        write("g, the same as c", &other);
    }
}

fn sparse(dir: &Path) {
    fs::create_dir(dir).unwrap();
    for (name, len, data) in [
        ("all", 3_000_000, &[][..]),
        ("start", 2_500_001, &[2_500_000]),
        ("middle", 3_000_000, &[0, 2_999_000]),
        ("end", 2_500_000, &[0]),
        ("short", 3000, &[]),
    ] {
        let file = File::create(dir.join(name)).unwrap();
        file.set_len(len).unwrap();
        for &at in data {
            file.write_all_at(b"x", at).unwrap();
        }
    }
}

fn xattrs(dir: &Path) {
    fs::create_dir(dir).unwrap();
    let long = generate::bytes(5, 2000);
    for n in 0..40_u32 {
        let path = dir.join(format!("file {n}"));
        fs::write(&path, "x").unwrap();
        let own = n.to_string();
        // Half of the sets are shared; a long value is in all of them.
        let own = if n % 2 == 0 { "shared" } else { &own };
        xattr::set(&path, "user.own", own.as_bytes()).unwrap();
        xattr::set(&path, "user.long", &long).unwrap();
        xattr::set(&path, "user.none", b"").unwrap();
    }
    xattr::set(dir, "user.on a directory", b"value").unwrap();
    let plain = dir.join("file 0");
    xattr::set(plain, "security.capability", &CAPABILITY).unwrap();
    for (name, kind) in [
        ("fifo", FileType::Fifo),
        ("null", FileType::CharacterDevice),
    ] {
        let path = dir.join(name);
        mknodat(
            CWD,
            &path,
            kind,
            Mode::from(0o600),
            rustix::fs::makedev(1, 3),
        )
        .unwrap();
        xattr::set(&path, "trusted.special", b"\0\xff").unwrap();
    }
    symlink("nowhere", dir.join("link")).unwrap();
    xattr::set(dir.join("link"), "trusted.on a link", b"1").unwrap();
    fs::hard_link(dir.join("file 1"), dir.join("linked")).unwrap();
}

/// `cap_net_raw+ep`, in version 2 of the attribute.
const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Sets times. Comes last, since everything else changes them.
fn times(dir: &Path) {
    for (path, seconds) in [
        ("empty", 0),
        ("setuid", 1),
        ("link", 0x7fff_ffff),
        ("secret", 0x8000_0000),
        ("a/b", 0xffff_ffff),
        ("", 1_600_000_000),
    ] {
        let time = Timespec {
            tv_sec: seconds,
            tv_nsec: 0,
        };
        let times = Timestamps {
            last_access: time,
            last_modification: time,
        };
        utimensat(CWD, dir.join(path), &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
}

pub fn run(command: &mut Command) -> String {
    let output = children::output(command).unwrap();
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {out}{err}");
    out
}

/// Extended attributes of a tree: path, name, value.
pub type Xattrs = BTreeMap<Vec<u8>, BTreeMap<Vec<u8>, Vec<u8>>>;

/// Reads all extended attributes of a host tree, by path.
pub fn xattrs_of(root: &Path, model: &TreeModel) -> Xattrs {
    let mut all = Xattrs::new();
    for path in model.nodes.keys() {
        let host = root.join(OsStr::from_bytes(path));
        let mut set = BTreeMap::new();
        let names = match xattr::list(&host) {
            // An image without extended attributes.
            Err(error) if error.kind() == std::io::ErrorKind::Unsupported => continue,
            names => names.unwrap(),
        };
        for name in names {
            let value = xattr::get(&host, &name).unwrap().unwrap();
            set.insert(name.as_bytes().to_vec(), value);
        }
        if !set.is_empty() {
            all.insert(path.clone(), set);
        }
    }
    all
}

/// Reads all extended attributes of an image, by path.
pub fn image_xattrs(fs: &dyn FileSystem) -> Xattrs {
    let mut all = Xattrs::new();
    for entry in Walk::new(fs, fs.root(), &Limits::default()) {
        let entry = entry.unwrap();
        let mut set = BTreeMap::new();
        fs.xattrs(entry.node, &mut |name, value| {
            assert!(set.insert(name.to_vec(), value.to_vec()).is_none());
        })
        .unwrap();
        if !set.is_empty() {
            all.insert(entry.path, set);
        }
    }
    all
}
