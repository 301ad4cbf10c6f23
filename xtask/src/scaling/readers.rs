//! Processes that read one mount: the same reads, shared among more and more readers.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result};
use forerun_testkit::rng::Rng;

use super::Lab;
use super::cost::{ForegroundMount, cpu_of, drop_caches};
use super::series::{CONSTANT, ScalingSeries};

const READERS: &[u64] = &[1, 2, 4, 8, 16, 32, 64];
/// Length of the file.
const LEN: u64 = 256 << 20;
/// Random reads of all readers together.
const READS: u64 = 8192;
const PAGE: u64 = 4096;
/// Bytes of a sequential read.
const STEP: usize = 128 << 10;

pub fn measure(lab: &Lab) -> Result<Vec<ScalingSeries>> {
    let (source, image) = (lab.dir.join("source"), lab.dir.join("image"));
    fs::create_dir_all(&source)?;
    fs::write(source.join("data"), numbers(usize::try_from(LEN)?))?;
    lab.pack(
        &source,
        &image,
        &[
            "--format",
            "squashfs",
            "--compressor",
            "zstd",
            "--level",
            "3",
        ],
    )?;
    let of = |what: &str, unit| ScalingSeries::new(what, "readers", unit, CONSTANT);
    let mut random = of("8,192 random reads together", "s");
    let mut random_cpu = of("8,192 random reads together", "s of CPU of the server");
    let mut parts = of("each a part of a file, from start to end", "s");
    for &readers in READERS {
        let image = image.display().to_string();
        let mount = ForegroundMount::new(lab, &image, "mnt", &[])?;
        let path = mount.dir().join("data");
        let used = cpu_of(mount.pid())?;
        random.push(
            readers,
            timed(readers, &|n| {
                let file = File::open(&path)?;
                let mut rng = Rng::new(n);
                let mut page = vec![0; usize::try_from(PAGE)?];
                for _ in 0..READS / readers {
                    file.read_exact_at(&mut page, rng.below(LEN / PAGE) * PAGE)?;
                }
                Ok(())
            })?,
        );
        random_cpu.push(readers, cpu_of(mount.pid())? - used);
        drop(mount);
        // A new server, which has decoded nothing.
        let mount = ForegroundMount::new(lab, &image, "mnt", &[])?;
        let path = mount.dir().join("data");
        let of_each = LEN / readers;
        parts.push(
            readers,
            timed(readers, &|n| {
                let file = File::open(&path)?;
                let mut buffer = vec![0; STEP];
                let mut at = n * of_each;
                while at < (n + 1) * of_each {
                    file.read_exact_at(&mut buffer, at)?;
                    at += u64::try_from(STEP)?;
                }
                Ok(())
            })?,
        );
        drop(mount);
    }
    fs::remove_file(image)?;
    Ok(vec![random, random_cpu, parts])
}

/// Returns text that is compressed to about half.
fn numbers(len: usize) -> String {
    let (mut text, mut rng) = (String::with_capacity(len + 32), Rng::new(1));
    while text.len() < len {
        let _never_fails = writeln!(text, "{}", rng.next_u64());
    }
    text.truncate(len);
    text
}

/// Has so many readers work at the same time, and returns how long it took.
fn timed(readers: u64, read: &(dyn Fn(u64) -> Result<()> + Sync)) -> Result<f64> {
    drop_caches()?;
    let start = Instant::now();
    thread::scope(|scope| {
        let started: Vec<_> = (0..readers).map(|n| scope.spawn(move || read(n))).collect();
        started
            .into_iter()
            .try_for_each(|reader| reader.join().ok().context("a reader panicked")?)
    })?;
    Ok(start.elapsed().as_secs_f64())
}
