//! `forerun __bench`'s workloads, as a hidden command: the same code for every driver, in separate
//! processes, as a user's programs would be.
//!
//! Each workload returns its findings, so that runs over different drivers can be compared.

use std::fs::{self, File, FileType};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use fastrand::Rng;
use rustix::fs::{Advice, fadvise};

/// Bytes per read, as in cat(1) and cp(1).
pub const BUFFER: usize = 128 << 10;
/// Length of a random read.
pub const PAGE: u64 = 4096;
/// Number of random reads, and of threads that do them.
const READS: u64 = 4000;
const THREADS: u64 = 2;
const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

/// A piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Work {
    /// Read files, as cat(1) does
    Cat,
    /// Read pages of a file at places of a seeded sequence
    Random,
    /// Walk, and read every file when it is met
    Tree,
    /// Walk, with all metadata
    List,
    /// Compute the digest of a file
    FileDigest,
    /// Compute the digest of paths, types, contents and targets of links. Formats and drivers differ in what they show of
    /// owners, modes and times, and extraction leaves devices out, so these are not in it
    TreeDigest,
}

impl Work {
    pub fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_string())
    }
}

/// The location of a workload: a directory, or an image without a mount.
pub trait Place {
    /// Calls `each` with everything below the root.
    fn walk(&self, each: &mut dyn FnMut(&Found<'_>) -> Result<()>) -> Result<()>;

    /// Opens a file, either as cat(1) does, for which the kernel doubles its readahead, or for
    /// random reads.
    fn open(&self, path: &Path, as_cat: bool) -> Result<Box<dyn Contents + '_>>;
}

pub struct Found<'f> {
    /// Path relative to the root.
    pub path: &'f [u8],
    pub kind: Kind,
    /// Opens a file, or reads the target of a link.
    pub contents: &'f dyn Fn() -> Result<Box<dyn Contents + 'f>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Directory,
    File,
    Link,
    /// Devices, pipes and sockets.
    Other,
}

pub trait Contents: Sync {
    fn len(&self) -> Result<u64>;

    fn read_at(&self, out: &mut [u8], at: u64) -> io::Result<usize>;
}

/// Runs a workload. Reads at most `most` bytes of a file, `chunk` bytes at a time. Returns the numbers
/// of files and bytes, or a sum or digest of the contents.
pub fn run(
    work: Work,
    place: &dyn Place,
    paths: &[PathBuf],
    most: u64,
    chunk: usize,
) -> Result<String> {
    let first = || place.open(paths.first().context("no file is named")?, false);
    let (mut files, mut bytes) = (0_u64, 0_u64);
    match work {
        Work::Cat => {
            for path in paths {
                let file = place.open(path, true)?;
                let read = consume(&*file, most, chunk, &mut |_| ());
                let read = read.with_context(|| path.display().to_string())?;
                let len = file.len()?.min(most);
                ensure!(read == len, "{}: {read} of {len} bytes", path.display());
                files += 1;
                bytes += read;
            }
        }
        Work::Tree => place.walk(&mut |found| {
            if found.kind == Kind::File {
                files += 1;
                bytes += consume(&*(found.contents)()?, u64::MAX, chunk, &mut |_| ())?;
            }
            Ok(())
        })?,
        Work::List => {
            place.walk(&mut |_| {
                files += 1;
                Ok(())
            })?;
            return Ok(format!("{files} entries"));
        }
        Work::Random => return random(&*first()?, READS, THREADS),
        Work::FileDigest => return Ok(digest(&*first()?, most)?.to_string()),
        Work::TreeDigest => return tree_digest(place),
    }
    Ok(format!("{files} {bytes}"))
}

fn consume(
    contents: &dyn Contents,
    most: u64,
    chunk: usize,
    each: &mut dyn FnMut(&[u8]),
) -> Result<u64> {
    let mut stream = Stream { contents, at: 0 }.take(most);
    let mut chunk = vec![0; chunk];
    let mut bytes = 0;
    loop {
        let count = stream.read(&mut chunk)?;
        if count == 0 {
            return Ok(bytes);
        }
        each(chunk.get(..count).unwrap_or_default());
        bytes += u64::try_from(count)?;
    }
}

/// Computes the digest of a file's first `most` bytes.
pub fn digest(contents: &dyn Contents, most: u64) -> Result<blake3::Hash> {
    let mut hasher = blake3::Hasher::new();
    consume(contents, most, 1 << 20, &mut |part| _ = hasher.update(part))?;
    Ok(hasher.finalize())
}

/// Computes the digest of a tree: the sum of the digests of all entries, in four parts. It does not
/// depend on the order in which a driver lists a directory.
fn tree_digest(place: &dyn Place) -> Result<String> {
    let (mut sum, mut entries) = ([0_u64; 4], 0_u64);
    place.walk(&mut |found| {
        let mut hasher = blake3::Hasher::new();
        match found.kind {
            Kind::Other => return Ok(()),
            Kind::Directory => hasher.update(b"d"),
            Kind::File | Kind::Link => {
                let kind = if found.kind == Kind::File { b"f" } else { b"l" };
                hasher.update(kind);
                hasher.update(digest(&*(found.contents)()?, u64::MAX)?.as_bytes())
            }
        };
        let digest = hasher.update(found.path).finalize();
        let (parts, _) = digest.as_bytes().as_chunks();
        for (sum, part) in sum.iter_mut().zip(parts) {
            *sum = sum.wrapping_add(u64::from_le_bytes(*part));
        }
        entries += 1;
        Ok(())
    })?;
    let [a, b, c, d] = sum;
    Ok(format!(
        "{a:016x}{b:016x}{c:016x}{d:016x} {entries} entries"
    ))
}

/// Reads pages at random offsets from a seeded sequence, with several threads. Returns the number
/// of reads, and a sum over the contents.
fn random(file: &dyn Contents, reads: u64, threads: u64) -> Result<String> {
    let pages = file.len()? / PAGE;
    ensure!(pages > 0, "less than a page");
    let sum = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let count = reads / threads + u64::from(thread < reads % threads);
                scope.spawn(move || read_pages(file, Rng::with_seed(thread), pages, count))
            })
            .collect();
        workers.into_iter().try_fold(0_u64, |sum, worker| {
            let part = worker.join().ok().context("a thread panicked")??;
            Ok::<_, anyhow::Error>(sum.wrapping_add(part))
        })
    })?;
    Ok(format!("{reads} {sum:016x}"))
}

/// Reads pages, and computes FNV-1a over their words.
fn read_pages(file: &dyn Contents, mut rng: Rng, pages: u64, count: u64) -> Result<u64> {
    let mut page = vec![0; usize::try_from(PAGE)?];
    let mut sum = FNV_START;
    for _ in 0..count {
        let read = file.read_at(&mut page, rng.u64(0..pages) * PAGE)?;
        ensure!(read == page.len(), "{read} bytes of a page");
        for word in page.as_chunks().0 {
            sum = (sum ^ u64::from_le_bytes(*word)).wrapping_mul(FNV_PRIME);
        }
    }
    Ok(sum)
}

/// A file that is read from its start.
struct Stream<'c> {
    contents: &'c dyn Contents,
    at: u64,
}

impl Read for Stream<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.contents.read_at(out, self.at)?;
        self.at += u64::try_from(count).map_err(io::Error::other)?;
        Ok(count)
    }
}

/// A directory. Paths of opened files are not relative to it.
pub struct Below(pub PathBuf);

impl Place for Below {
    fn walk(&self, each: &mut dyn FnMut(&Found<'_>) -> Result<()>) -> Result<()> {
        // The open listings, innermost last.
        let mut open = vec![listing(&self.0)?];
        while let Some(listing_now) = open.last_mut() {
            let Some((path, kind)) = listing_now.next() else {
                open.pop();
                continue;
            };
            let named = || path.display().to_string();
            let contents = || -> Result<Box<dyn Contents>> {
                if kind.is_symlink() {
                    let target = fs::read_link(&path).with_context(named)?;
                    return Ok(Box::new(target.into_os_string().into_vec()));
                }
                Ok(Box::new(File::open(&path).with_context(named)?))
            };
            let below = path.strip_prefix(&self.0).unwrap_or(&path);
            let found = Found {
                path: below.as_os_str().as_bytes(),
                kind: Kind::of(kind),
                contents: &contents,
            };
            each(&found).with_context(named)?;
            if kind.is_dir() {
                open.push(listing(&path)?);
            }
        }
        Ok(())
    }

    fn open(&self, path: &Path, as_cat: bool) -> Result<Box<dyn Contents + '_>> {
        let named = || path.display().to_string();
        let file = File::open(path).with_context(named)?;
        if as_cat {
            fadvise(&file, 0, None, Advice::Sequential).with_context(named)?;
        }
        Ok(Box::new(file))
    }
}

impl Kind {
    fn of(kind: FileType) -> Self {
        match kind {
            kind if kind.is_dir() => Self::Directory,
            kind if kind.is_file() => Self::File,
            kind if kind.is_symlink() => Self::Link,
            _ => Self::Other,
        }
    }
}

impl Contents for File {
    fn len(&self) -> Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, out: &mut [u8], at: u64) -> io::Result<usize> {
        FileExt::read_at(self, out, at)
    }
}

impl Contents for Vec<u8> {
    fn len(&self) -> Result<u64> {
        Ok(u64::try_from(self.as_slice().len())?)
    }

    fn read_at(&self, out: &mut [u8], at: u64) -> io::Result<usize> {
        let at = usize::try_from(at).map_err(io::Error::other)?;
        self.get(at..).unwrap_or_default().read(out)
    }
}

/// Reads a listing completely, in the order of the directory.
fn listing(dir: &Path) -> Result<std::vec::IntoIter<(PathBuf, FileType)>> {
    let entries = fs::read_dir(dir).and_then(|entries| {
        entries
            .map(|entry| entry.and_then(|entry| Ok((entry.path(), entry.file_type()?))))
            .collect::<io::Result<Vec<_>>>()
    });
    Ok(entries
        .with_context(|| dir.display().to_string())?
        .into_iter())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_tree(work: Work, files: &[(&str, Vec<u8>)], most: u64) -> Result<String> {
        let dir = tempfile::tempdir().unwrap();
        let mut paths = Vec::new();
        for (name, contents) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, contents).unwrap();
            paths.push(path);
        }
        std::os::unix::fs::symlink("/", dir.path().join("link")).unwrap();
        run(work, &Below(dir.path().to_path_buf()), &paths, most, BUFFER)
    }

    #[test]
    fn files_are_read_whole_or_up_to_the_bound() {
        let files = [
            ("a/b/x", vec![1; 300_000]),
            ("y", b"12345".to_vec()),
            ("z", Vec::new()),
        ];
        let of = |work, most| in_tree(work, &files, most).unwrap();
        assert_eq!(of(Work::Tree, u64::MAX), "3 300005");
        assert_eq!(of(Work::Cat, u64::MAX), "3 300005");
        assert_eq!(of(Work::Cat, 1000), "3 1005");
        assert_eq!(of(Work::List, u64::MAX), "6 entries");
    }

    #[test]
    fn every_byte_and_name_counts_in_the_digest_of_a_tree() {
        let tree = |files: &[(&str, &str)]| {
            let files = files
                .iter()
                .map(|(name, text)| (*name, text.as_bytes().to_vec()));
            in_tree(Work::TreeDigest, &files.collect::<Vec<_>>(), u64::MAX).unwrap()
        };
        let one = tree(&[("a", "1"), ("b/c", "2")]);
        assert!(one.ends_with(" 4 entries"), "{one}");
        assert_eq!(one, tree(&[("b/c", "2"), ("a", "1")]));
        for other in [
            [("a", "2"), ("b/c", "1")],
            [("a", "1"), ("b/d", "2")],
            [("a", "1"), ("b/c", "")],
        ] {
            assert_ne!(one, tree(&other), "{other:?}");
        }
    }

    #[test]
    fn a_bound_cuts_the_digest_of_a_file() {
        let of = |len, most| in_tree(Work::FileDigest, &[("a", vec![7; len])], most).unwrap();
        assert_eq!(of(3000, 1000), of(1000, 5000));
        assert_ne!(of(3000, 1001), of(1000, 5000));
    }

    #[test]
    fn the_same_places_each_time() {
        let file: Vec<u8> = forerun_testkit::generate::bytes(1, 1 << 20);
        let sum = |seed| read_pages(&file, Rng::with_seed(seed), 256, 50).unwrap();
        assert_eq!(sum(1), sum(1));
        assert_ne!(sum(1), sum(2));
        let all = |reads| random(&file, reads, 2).unwrap();
        assert_eq!(all(51), all(51));
        assert_ne!(all(51), all(50));
        assert!(random(&vec![0; 100], 1, 1).is_err());
    }
}
