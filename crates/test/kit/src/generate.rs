//! Trees of files to make images from. They are seeded, so that every machine gets the same bytes.
//!
//! [`Shape`] lists the trees with which every format is tested. Contents compress about two to one,
//! like those of real systems.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use forerun_io::{u64_from, usize_from};
use rustix::fs::{CWD, FileType as NodeType, Mode, makedev, mknodat};

use crate::rng::Rng;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Only the root.
    Empty,
    /// Some of everything: 200 files in directories, links, empty files.
    Mixed,
    /// Directories 60 levels deep, with a file in each.
    Deep,
    /// 10,000 small files in one directory.
    ManyFiles,
    /// One file of 250 MB.
    BigFile,
    /// Files with several names, also in other directories; a symbolic link with two names.
    HardLinks,
    /// Block and character devices, a fifo and a socket. Needs root.
    Devices,
    /// Names of 1 to 255 bytes, and of every byte that a name can have.
    LongNames,
    /// Files with lengths around powers of two.
    OddLengths,
    /// Symbolic links: relative, absolute, dangling, long.
    Symlinks,
}

impl Shape {
    pub const ALL: &'static [Self] = &[
        Self::Empty,
        Self::Mixed,
        Self::Deep,
        Self::ManyFiles,
        Self::BigFile,
        Self::HardLinks,
        Self::Devices,
        Self::LongNames,
        Self::OddLengths,
        Self::Symlinks,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::Mixed => "mixed",
            Self::Deep => "deep",
            Self::ManyFiles => "many-files",
            Self::BigFile => "big-file",
            Self::HardLinks => "hard-links",
            Self::Devices => "devices",
            Self::LongNames => "long-names",
            Self::OddLengths => "odd-lengths",
            Self::Symlinks => "symlinks",
        }
    }

    pub const fn needs_root(self) -> bool {
        matches!(self, Self::Devices)
    }

    /// Makes the tree in `dir`, an empty directory.
    pub fn populate(self, dir: &Path) {
        let outcome = match self {
            Self::Empty => Ok(()),
            Self::Mixed => mixed(dir, 1, 200),
            Self::Deep => deep(dir, 60),
            Self::ManyFiles => many_files(dir, 10_000),
            Self::BigFile => big_file(&dir.join("big"), 250_000_000),
            Self::HardLinks => hard_links(dir),
            Self::Devices => devices(dir),
            Self::LongNames => long_names(dir),
            Self::OddLengths => odd_lengths(dir),
            Self::Symlinks => symlinks(dir),
        };
        if let Err(error) = outcome {
            panic!("{}: {error}", dir.display());
        }
    }
}

/// Returns text that compresses to about a third and does not repeat.
pub fn text(len: usize) -> Vec<u8> {
    let (mut out, mut number) = (Vec::new(), 1_u64);
    while out.len() < len {
        number = number
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let line = format!("{} times {}\n", number >> 40, out.len() / 999);
        out.extend_from_slice(line.as_bytes());
    }
    out.truncate(len);
    out
}

/// Generates `len` bytes that compress about two to one.
pub fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(len);
    let write = write_bytes(&mut out, seed, u64_from(len));
    write.expect("writing to memory");
    out
}

/// Writes the bytes that [`bytes`] returns, without storing them.
pub fn write_bytes(out: &mut dyn Write, seed: u64, len: u64) -> io::Result<()> {
    let mut rng = Rng::new(seed);
    let mut block = [0; 512];
    let mut left = len;
    while left > 0 {
        // Half of each block is noise, the other half a repeated word.
        let (noise, words) = block.split_at_mut(256);
        for word in noise.chunks_exact_mut(8) {
            word.copy_from_slice(&rng.next_u64().to_le_bytes());
        }
        let repeated = rng.next_u64().to_le_bytes();
        words
            .chunks_exact_mut(8)
            .for_each(|word| word.copy_from_slice(&repeated));
        let step = block.len().min(usize_from(left));
        out.write_all(&block[..step])?;
        left -= u64_from(step);
    }
    Ok(())
}

pub fn big_file(path: &Path, len: u64) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    write_bytes(&mut out, len, len)?;
    out.flush()
}

/// Creates `count` files of up to 300 bytes in one directory.
pub fn many_files(dir: &Path, count: u64) -> io::Result<()> {
    for n in 0..count {
        let len = usize_from(n % 300);
        fs::write(dir.join(format!("file-{n:06}")), bytes(n, len))?;
    }
    Ok(())
}

/// Creates `files` files of about `mean` bytes each, 100 per directory: the tree of a small system.
pub fn spread(dir: &Path, files: u64, mean: u64) -> io::Result<()> {
    let mut rng = Rng::new(files);
    for n in 0..files {
        let parent = dir
            .join(format!("d{:03}", n / 1000))
            .join(format!("e{}", n / 100 % 10));
        fs::create_dir_all(&parent)?;
        let mut out = BufWriter::new(File::create(parent.join(format!("file-{n:06}")))?);
        // From half the mean to one and a half times the mean.
        write_bytes(&mut out, n, mean / 2 + rng.below(mean))?;
        out.flush()?;
    }
    Ok(())
}

pub fn deep(dir: &Path, depth: u64) -> io::Result<()> {
    let mut dir = dir.to_path_buf();
    for n in 0..depth {
        fs::write(dir.join("file"), bytes(n, 100))?;
        dir.push(format!("level-{n}"));
        fs::create_dir(&dir)?;
    }
    Ok(())
}

/// Creates a tree of `files` files with directories, symbolic and hard links, executables and empty
/// files.
pub fn mixed(dir: &Path, seed: u64, files: u64) -> io::Result<()> {
    let mut rng = Rng::new(seed);
    let mut dirs = vec![dir.to_path_buf()];
    let mut made = Vec::new();
    for n in 0..files {
        let parent = dirs[usize_from(rng.below(u64_from(dirs.len())))].clone();
        let path = parent.join(format!("node-{n}"));
        match rng.below(20) {
            0 | 1 => {
                fs::create_dir(&path)?;
                dirs.push(path);
            }
            2 => symlink(format!("node-{}", rng.below(files)), &path)?,
            3 if !made.is_empty() => {
                let target = usize_from(rng.below(u64_from(made.len())));
                fs::hard_link(&made[target], &path)?;
            }
            4 => fs::write(&path, b"")?,
            kind => {
                let bound = 1 << rng.below(17);
                let len = rng.below(bound);
                fs::write(&path, bytes(rng.next_u64(), usize_from(len)))?;
                let mode = if kind == 5 { 0o755 } else { 0o644 };
                fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
                made.push(path);
            }
        }
    }
    Ok(())
}

fn hard_links(dir: &Path) -> io::Result<()> {
    fs::create_dir(dir.join("sub"))?;
    fs::write(dir.join("one"), bytes(1, 5000))?;
    fs::write(dir.join("alone"), bytes(2, 100))?;
    fs::write(dir.join("sub/empty"), b"")?;
    // Names before and after the first one in byte order, in the same and in another directory.
    for name in ["a-one", "z-one", "sub/one", "sub/zz"] {
        fs::hard_link(dir.join("one"), dir.join(name))?;
    }
    fs::hard_link(dir.join("sub/empty"), dir.join("empty"))?;
    symlink("one", dir.join("link"))?;
    fs::hard_link(dir.join("link"), dir.join("sub/link"))
}

fn devices(dir: &Path) -> io::Result<()> {
    let numbers = [(1, 3), (8, 0), (254, 255), (0, 0)];
    for (n, (major, minor)) in numbers.into_iter().enumerate() {
        let device = makedev(major, minor);
        for (kind, name) in [
            (NodeType::CharacterDevice, "char"),
            (NodeType::BlockDevice, "block"),
        ] {
            // Overlay filesystems hide names with the character device 0:0.
            if (major, minor) != (0, 0) {
                let path = dir.join(format!("{name}-{n}"));
                mknodat(CWD, &path, kind, Mode::from_raw_mode(0o600), device)?;
            }
        }
    }
    mknodat(
        CWD,
        dir.join("fifo"),
        NodeType::Fifo,
        Mode::from_raw_mode(0o644),
        0,
    )?;
    drop(UnixListener::bind(dir.join("socket"))?);
    fs::write(dir.join("file"), b"beside devices\n")
}

fn long_names(dir: &Path) -> io::Result<()> {
    for len in [1, 2, 14, 15, 16, 17, 30, 31, 32, 33, 127, 128, 254, 255] {
        let name: String = ('a'..='z').cycle().take(len).collect();
        fs::write(dir.join(&name), name.as_bytes())?;
        if len < 255 {
            fs::create_dir(dir.join(format!("{name}_")))?;
            fs::write(dir.join(format!("{name}_")).join(&name), b"inside")?;
        }
    }
    for byte in 1..=255_u8 {
        let name = [b'b', byte, b'b'];
        if byte != b'/' && !dir.join(OsStr::from_bytes(&name)).exists() {
            fs::write(dir.join(OsStr::from_bytes(&name)), [byte])?;
        }
    }
    fs::write(dir.join("..."), b"three dots")
}

fn odd_lengths(dir: &Path) -> io::Result<()> {
    for shift in [0, 4, 9, 10, 12, 16, 17, 20] {
        let power = 1_usize << shift;
        for len in [power - 1, power, power + 1] {
            fs::write(dir.join(format!("len-{len:08}")), bytes(u64_from(len), len))?;
        }
    }
    fs::write(dir.join("zeros"), vec![0; 100_000])
}

fn symlinks(dir: &Path) -> io::Result<()> {
    fs::create_dir(dir.join("sub"))?;
    fs::write(dir.join("file"), b"pointed at\n")?;
    symlink("file", dir.join("relative"))?;
    symlink("../file", dir.join("sub/up"))?;
    symlink("/file", dir.join("absolute"))?;
    symlink("nowhere", dir.join("dangling"))?;
    symlink("loop", dir.join("loop"))?;
    symlink("sub", dir.join("to-dir"))?;
    symlink(OsStr::from_bytes(b"\xff\xfe \n"), dir.join("bytes"))?;
    symlink("x/".repeat(1500), dir.join("long"))
}

/// Returns bytes that do not repeat but still compress.
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let words = (0..len.div_ceil(8)).flat_map(|n| {
        if n % 4 == 0 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
        }
        state.to_le_bytes()
    });
    words.take(len).collect()
}
