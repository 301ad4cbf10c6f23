//! The work of the measured processes, as a hidden command of the program that measures: the same code for
//! every driver, in processes of its own as a user's would be.
//!
//! Each returns what it found, so that runs over different drivers can be compared.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use rustix::fs::{Advice, fadvise};

use super::digest;

/// Bytes asked for at once, as cat(1) and cp(1) do.
const BUFFER: usize = 128 << 10;
/// Length of a random read.
pub const PAGE: u64 = 4096;
/// Reads at random places.
pub const READS: u64 = 4000;
/// Threads that do these.
pub const THREADS: u64 = 2;
const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

/// A piece of work.
#[derive(Debug, clap::Subcommand)]
pub enum Work {
    /// Walk in directory order and read every file when it is met
    Tree {
        /// Where to start
        dir: PathBuf,
    },
    /// Read files as cat(1) does, which has the kernel read twice as far ahead
    Files {
        /// Bytes of each file that are read at the most
        #[arg(long, default_value_t = u64::MAX)]
        most: u64,
        /// In this order
        files: Vec<PathBuf>,
    },
    /// Read pages of a file at places of a seeded sequence
    Random {
        /// The file
        file: PathBuf,
    },
    /// Compute the digest of a file, or of a tree
    Digest {
        /// Bytes of a file that are read at the most
        #[arg(long, default_value_t = u64::MAX)]
        most: u64,
        /// The file or directory
        path: PathBuf,
    },
}

/// Does the work, and returns the numbers of files and bytes, or a sum or digest over what was read.
pub fn run(work: &Work) -> Result<String> {
    match work {
        Work::Tree { dir } => tree(dir).map(|totals| totals.text()),
        Work::Files { most, files } => {
            let mut totals = Totals::new();
            let advice = Some(Advice::Sequential);
            files
                .iter()
                .try_for_each(|file| totals.read(file, *most, advice))?;
            Ok(totals.text())
        }
        Work::Random { file } => {
            let file = File::open(file).with_context(|| file.display().to_string())?;
            let len = file.metadata()?.len();
            random(len, READS, THREADS, &|page, at| {
                file.read_exact_at(page, at)
            })
        }
        Work::Digest { most, path } if path.is_file() => {
            Ok(digest::of_file(path, *most)?.to_string())
        }
        Work::Digest { path, .. } => Ok(digest::of_tree(path)?.text()),
    }
}

struct Totals {
    files: u64,
    bytes: u64,
    buffer: Vec<u8>,
}

impl Totals {
    fn new() -> Self {
        Self {
            files: 0,
            bytes: 0,
            buffer: vec![0; BUFFER],
        }
    }

    fn read(&mut self, path: &Path, most: u64, advice: Option<Advice>) -> Result<()> {
        let with_path = || path.display().to_string();
        let file = File::open(path).with_context(with_path)?;
        if let Some(advice) = advice {
            fadvise(&file, 0, None, advice).with_context(with_path)?;
        }
        let len = file.metadata().with_context(with_path)?.len().min(most);
        let mut file = file.take(most);
        let mut read = 0;
        loop {
            let count = file.read(&mut self.buffer).with_context(with_path)?;
            if count == 0 {
                break;
            }
            read += u64::try_from(count)?;
        }
        ensure!(read == len, "{}: {read} of {len} bytes", path.display());
        self.files += 1;
        self.bytes += read;
        Ok(())
    }

    fn text(&self) -> String {
        format!("{} {}", self.files, self.bytes)
    }
}

fn tree(dir: &Path) -> Result<Totals> {
    let mut totals = Totals::new();
    // The listings that are being walked through, the innermost last.
    let mut open = vec![listing(dir)?];
    while let Some(listing_now) = open.last_mut() {
        let Some((path, kind)) = listing_now.next() else {
            open.pop();
            continue;
        };
        if kind.is_dir() {
            open.push(listing(&path)?);
        } else if kind.is_file() {
            totals.read(&path, u64::MAX, None)?;
        }
    }
    Ok(totals)
}

/// Reads a listing completely, in the order of the directory.
fn listing(dir: &Path) -> Result<std::vec::IntoIter<(PathBuf, fs::FileType)>> {
    let entries = fs::read_dir(dir).and_then(|entries| {
        entries
            .map(|entry| entry.and_then(|entry| Ok((entry.path(), entry.file_type()?))))
            .collect::<Result<Vec<_>, _>>()
    });
    Ok(entries
        .with_context(|| dir.display().to_string())?
        .into_iter())
}

/// Reads pages of a file of `len` bytes at places of a seeded sequence, with several threads. Returns the
/// number of reads, and a sum over what was read. `read` fills a page from its place.
pub fn random(
    len: u64,
    reads: u64,
    threads: u64,
    read: &(dyn Fn(&mut [u8], u64) -> std::io::Result<()> + Sync),
) -> Result<String> {
    let pages = len / PAGE;
    ensure!(pages > 0 && threads > 0, "less than a page");
    let sum = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let count = reads / threads + u64::from(thread < reads % threads);
                scope.spawn(move || read_pages(read, Rng::with_seed(thread), pages, count))
            })
            .collect();
        workers.into_iter().try_fold(0_u64, |sum, worker| {
            let part = worker.join().ok().context("a thread panicked")??;
            Ok::<_, anyhow::Error>(sum.wrapping_add(part))
        })
    })?;
    Ok(format!("{reads} {sum:016x}"))
}

/// Computes FNV-1a over the words of the pages that it reads.
fn read_pages(
    read: &(dyn Fn(&mut [u8], u64) -> std::io::Result<()> + Sync),
    mut rng: Rng,
    pages: u64,
    count: u64,
) -> Result<u64> {
    let mut page = vec![0; usize::try_from(PAGE)?];
    let mut sum = FNV_START;
    for _ in 0..count {
        read(&mut page, rng.u64(0..pages) * PAGE)?;
        for word in page.chunks_exact(8) {
            let word = u64::from_le_bytes(word.try_into()?);
            sum = (sum ^ word).wrapping_mul(FNV_PRIME);
        }
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_read_whole() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("a/b");
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("x"), vec![1; 300_000]).unwrap();
        fs::write(dir.path().join("y"), b"12345").unwrap();
        fs::write(dir.path().join("z"), b"").unwrap();
        std::os::unix::fs::symlink("/", dir.path().join("link")).unwrap();
        let totals = tree(dir.path()).unwrap();
        assert_eq!((totals.files, totals.bytes), (3, 300_005));
    }

    #[test]
    fn a_file_is_read_up_to_the_bound() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        fs::write(&path, vec![1; 300_000]).unwrap();
        for (most, expected) in [(1000, "1 1000"), (u64::MAX, "1 300000")] {
            let files = vec![path.clone()];
            assert_eq!(run(&Work::Files { most, files }).unwrap(), expected);
        }
    }

    #[test]
    fn the_same_places_each_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, forerun_testkit::generate::bytes(1, 1 << 20)).unwrap();
        let file = File::open(&path).unwrap();
        let read = |page: &mut [u8], at| file.read_exact_at(page, at);
        let sum = |seed| read_pages(&read, Rng::with_seed(seed), 256, 50).unwrap();
        assert_eq!(sum(1), sum(1));
        assert_ne!(sum(1), sum(2));
        let all = |reads| random(1 << 20, reads, 2, &read).unwrap();
        assert_eq!(all(51), all(51));
        assert_ne!(all(51), all(50));
        assert!(random(100, 1, 1, &read).is_err());
    }
}
