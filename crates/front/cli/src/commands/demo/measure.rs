//! The measurements: the same md5 over the image itself and over the file in it.
//!
//! The page cache is dropped before each: as root for the whole machine, else for the image. The legacy
//! mode can take very long on a slow disk, so it gets some seconds and the rest is extrapolated.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::time::{Duration, Instant};

use forerun::vfs::{Error, FollowLast, resolve};
use forerun::{Counter, EngineOptions, Image, NodeId, OpenOptions, Reader, StatsSnapshot};
use forerun_fuse::{Mount, MountOptions, mount};
use md5::{Digest, Md5};
use rustix::fs::Advice;

use super::{BIG, DemoDir};
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::interrupt::OnInterrupt;

/// Bytes of one read, everywhere.
const CHUNK: usize = 256 << 10;
/// Longest time for one line of the legacy mode.
const LEGACY_TIME: Duration = Duration::from_secs(6);

/// All lines of the table.
pub struct Measured {
    /// In the order of their first measurement; the others are compared with the first.
    pub rows: Vec<Row>,
    /// The reason why there are no measurements of the mount, where there are none.
    pub no_mount: Option<String>,
    /// Whether the caches of the whole machine were dropped.
    pub dropped_all: bool,
}

/// One line.
pub struct Row {
    /// The name of the line, for people.
    pub what: &'static str,
    /// Stable name for JSON.
    pub id: &'static str,
    /// Bytes read, fewer than all where time ran out.
    pub bytes: u64,
    /// Bytes there are.
    pub total: u64,
    /// Time it took.
    pub time: Duration,
    /// Counters of the engine; none for the image itself, which the engine does not read.
    pub stats: Option<StatsSnapshot>,
}

impl Row {
    /// Returns the seconds for all bytes, at the speed that was seen.
    pub fn seconds(&self) -> f64 {
        self.time.as_secs_f64() * ratio(self.total, self.bytes)
    }

    /// Returns whether all was read.
    pub const fn is_complete(&self) -> bool {
        self.bytes == self.total
    }

    /// Returns MiB per second.
    pub fn speed(&self) -> f64 {
        ratio(self.bytes, 1 << 20) / self.time.as_secs_f64().max(1e-9)
    }

    /// Returns the requests for all bytes, extrapolated likewise.
    pub fn requests(&self) -> Option<u64> {
        let stats = self.stats.as_ref()?;
        let requests = stats.get(Counter::SourceRequests);
        let all = u128::from(requests) * u128::from(self.total) / u128::from(self.bytes.max(1));
        Some(u64::try_from(all).unwrap_or(u64::MAX))
    }
}

#[allow(clippy::as_conversions)] // For display; no integer of this size loses what is shown of it.
fn ratio(a: u64, b: u64) -> f64 {
    a as f64 / b.max(1) as f64
}

/// Runs of a fast measurement, of which the better one counts: a single hiccup of the disk would decide
/// the comparison otherwise.
const RUNS: usize = 2;

/// Measures everything that this machine can do. `md5` is that of the large file.
pub fn all(image: &Path, place: &DemoDir, md5: &str) -> Result<Measured> {
    let dropped_all = drop_caches(image)?;
    let (mut rows, mut no_mount) = (Vec::new(), None);
    for (large, mode, runs) in [
        (true, BlockMode::LARGE, RUNS),
        (false, BlockMode::LEGACY, 1),
    ] {
        for _ in 0..runs {
            if large {
                keep_better(&mut rows, the_image(image)?);
            }
            if no_mount.is_none() {
                match mounted(image, place, large, mode.mounted, md5)? {
                    Ok(row) => keep_better(&mut rows, row),
                    Err(why) => no_mount = Some(why),
                }
            }
            keep_better(&mut rows, through_library(image, large, mode.library, md5)?);
        }
    }
    Ok(Measured {
        rows,
        no_mount,
        dropped_all,
    })
}

fn keep_better(rows: &mut Vec<Row>, row: Row) {
    match rows.iter_mut().find(|other| other.id == row.id) {
        Some(other) if other.seconds() > row.seconds() => *other = row,
        Some(_) => {}
        None => rows.push(row),
    }
}

/// Texts and stable names of the lines of a block mode.
#[derive(Clone, Copy)]
struct BlockMode {
    mounted: (&'static str, &'static str),
    library: (&'static str, &'static str),
}

impl BlockMode {
    const LARGE: Self = Self {
        mounted: ("file, mounted", "mount_largeblocks"),
        library: ("file, by the library", "library_largeblocks"),
    };
    const LEGACY: Self = Self {
        mounted: ("file, mounted, nolargeblocks", "mount_nolargeblocks"),
        library: (
            "file, by the library, nolargeblocks",
            "library_nolargeblocks",
        ),
    };
}

fn the_image(image: &Path) -> Result<Row> {
    drop_caches(image)?;
    let failed = |error: io::Error| Failure::source(&error).of(image.display());
    let mut file = File::open(image).map_err(failed)?;
    let total = file.metadata().map_err(failed)?.len();
    let read = timed(None, |_, chunk| file.read(chunk)).map_err(failed)?;
    Ok(Row {
        what: "the image itself",
        id: "image",
        bytes: read.bytes,
        total,
        time: read.time,
        stats: None,
    })
}

/// Measures the file in a mount; returns a sentence instead where FUSE does not work here.
fn mounted(
    image: &Path,
    place: &DemoDir,
    large: bool,
    (what, id): (&'static str, &'static str),
    md5: &str,
) -> Result<std::result::Result<Row, String>> {
    let dir = place.path("mnt");
    let failed = |error: io::Error| Failure::source(&error).of(dir.display());
    fs::create_dir_all(&dir).map_err(failed)?;
    let mut options = MountOptions::default();
    options.large_blocks = large;
    drop_caches(image)?;
    let opened = Image::open_with(image, &options.open_options()).map_err(Error::from)?;
    let mount: Mount = match mount(&opened, &dir, &options) {
        Ok(mount) => mount,
        Err(error) => return Ok(Err(crate::error::without_errno(&error.to_string()))),
    };
    let unmounter = mount.unmounter();
    let _guard = OnInterrupt::new(move || {
        let _ = unmounter.unmount();
    });
    let before = mount.stats();
    let mut file = File::open(dir.join(BIG)).map_err(failed)?;
    let total = file.metadata().map_err(failed)?.len();
    let patience = (!large).then_some(LEGACY_TIME);
    let read = timed(patience, |_, chunk| file.read(chunk)).map_err(failed)?;
    let stats = mount.stats().since(&before);
    drop(file);
    let row = Row {
        what,
        id,
        bytes: read.bytes,
        total,
        time: read.time,
        stats: Some(stats),
    };
    verify(&row, &read, md5)?;
    Ok(Ok(row))
}

fn through_library(
    image: &Path,
    large: bool,
    (what, id): (&'static str, &'static str),
    md5: &str,
) -> Result<Row> {
    drop_caches(image)?;
    let options = OpenOptions {
        engine: EngineOptions {
            large_blocks: large,
            ..EngineOptions::default()
        },
        ..OpenOptions::default()
    };
    let opened = Image::open_with(image, &options).map_err(Error::from)?;
    let reader: &Reader = opened.reader();
    let node: NodeId = resolve(
        reader.fs(),
        BIG.as_bytes(),
        FollowLast::Yes,
        reader.limits(),
    )?;
    let total = reader.fs().metadata(node)?.size;
    let before = reader.observer().stats().snapshot();
    let patience = (!large).then_some(LEGACY_TIME);
    let read = timed(patience, |at, chunk| {
        reader.read_into(node, at, chunk).map_err(io::Error::other)
    });
    let read = read.map_err(|error| Failure::source(&error))?;
    let row = Row {
        what,
        id,
        bytes: read.bytes,
        total,
        time: read.time,
        stats: Some(reader.observer().stats().snapshot().since(&before)),
    };
    verify(&row, &read, md5)?;
    Ok(row)
}

fn verify(row: &Row, read: &Outcome, md5: &str) -> Result<()> {
    if row.is_complete() && read.md5 != md5 {
        let message = format!("{}: md5 {} instead of {md5}", row.what, read.md5);
        return Err(Failure::new(Exit::Image, "mismatch", message));
    }
    Ok(())
}

struct Outcome {
    bytes: u64,
    time: Duration,
    md5: String,
}

/// Reads to the end, or until patience ends, and computes the md5 meanwhile.
fn timed(
    patience: Option<Duration>,
    mut read: impl FnMut(u64, &mut [u8]) -> io::Result<usize>,
) -> io::Result<Outcome> {
    let mut md5 = Md5::new();
    let mut chunk = vec![0; CHUNK];
    let mut bytes = 0_u64;
    let start = Instant::now();
    loop {
        let got = read(bytes, &mut chunk)?;
        md5.update(chunk.get(..got).unwrap_or_default());
        bytes = bytes.saturating_add(u64::try_from(got).unwrap_or(u64::MAX));
        if got == 0 || patience.is_some_and(|patience| start.elapsed() >= patience) {
            break;
        }
    }
    Ok(Outcome {
        bytes,
        time: start.elapsed(),
        md5: hex(&md5.finalize()),
    })
}

/// Computes the md5 of a stream.
pub fn md5(mut stream: impl Read) -> io::Result<String> {
    timed(None, |_, chunk| stream.read(chunk)).map(|read| read.md5)
}

/// Formats bytes in hexadecimal, as md5sum does.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Makes the next read of the image come from the disk. Returns whether all caches were dropped.
fn drop_caches(image: &Path) -> Result<bool> {
    let failed = |error: io::Error| Failure::source(&error).of(image.display());
    let file = File::open(image).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    let dropped = rustix::fs::fadvise(&file, 0, None, Advice::DontNeed);
    dropped.map_err(|error| failed(error.into()))?;
    // Pages that are not written back yet would stay.
    rustix::fs::sync();
    Ok(fs::write("/proc/sys/vm/drop_caches", "3").is_ok())
}
