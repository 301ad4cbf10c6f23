//! exFAT: removes a large file from a volume with dirsync. forerun writes each changed sector once.
//! The legacy way replays the writes of unpatched Linux, which for each cluster wrote the bitmap
//! sector with its bit, and made each write durable.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use forerun::build::{ExfatOptions, Tree};
use forerun::unstable::{VolumeMut, WriteOptions};
use forerun::vfs::{FileType, NewNode, Timestamp};
use forerun::{OpenOptions, Writer};

use super::files::write;
use super::parts::{Kit, PartName, failed};
use super::report::Part;
use crate::error::{Failure, Result};
use crate::measure::mount::Mount;
use crate::measure::peers::{Peer, Place};
use crate::measure::run::{Run, drop_caches, timed};
use crate::size;

/// Bytes of a cluster: the default for volumes of this size.
const CLUSTER: u64 = 128 << 10;
/// Longest file; 16 times the largest one of the other parts.
const MOST: u64 = 4 << 30;
const BIG: &str = "big";
/// Writes outside the bitmap: a flag in the boot sector, and three directory entries of the file.
const OTHERS: u64 = 4;
const PATIENCE: Duration = Duration::from_secs(4);

pub fn measure(kit: &Kit) -> Result<Part> {
    let clusters = ((kit.data.len * 16).min(MOST) / CLUSTER).max(1);
    let what = format!(
        "Removes a file of {} in {} of 128 KiB with dirsync: durable when rm returns.",
        size::human(clusters * CLUSTER),
        size::counted(clusters, "cluster", "clusters")
    );
    let mut part = Part::new(PartName::Exfat, what);
    let volume = make(kit, clusters * CLUSTER)?;
    if kit.no_mount.is_none() {
        let mount = || Mount::forerun(&kit.program, &volume, &["rw,dirsync"]);
        part.add_ours(&remove(&volume, mount).map_err(failed)?);
    }
    let all = clusters + OTHERS;
    let replayed = replay(&volume, all);
    let (written, seconds) =
        replayed.map_err(|error| Failure::output(&error).of(volume.display()))?;
    let run = Run {
        seconds,
        counters: [("writes".to_string(), written)].into(),
        ..Run::default()
    };
    part.add_legacy(&run, written, all);
    for &peer in Peer::of_format("exfat") {
        let volume = make(kit, clusters * CLUSTER)?;
        let place = Place {
            image: &volume,
            format: "exfat",
            offset: 0,
            size: None,
            objects: None,
            writable: true,
        };
        part.add_peer(peer, &place, || remove(&volume, || peer.mount(&place)));
    }
    Ok(part)
}

/// Makes a volume with one file of `len` bytes in adjacent clusters, without writing contents.
fn make(kit: &Kit, len: u64) -> Result<PathBuf> {
    let path = kit.dir.join("volume.exfat");
    let options = ExfatOptions {
        // The volume has as much free space as the file is long.
        size: Some(len * 2 + (64 << 20)),
        cluster_size: u32::try_from(CLUSTER).ok(),
        ..ExfatOptions::default()
    };
    write(&Writer::Exfat(options), &Tree::default(), &path)?;
    let opened = VolumeMut::open(&path, &OpenOptions::default(), &WriteOptions::default())?;
    let volume = opened.volume();
    let fs = volume.fs();
    let new = NewNode {
        kind: FileType::Regular,
        permissions: 0o644,
        owner: (0, 0),
        time: Timestamp {
            seconds: 1_700_000_000,
            nanoseconds: 0,
        },
    };
    let node = fs.create(fs.root(), BIG.as_bytes(), &new)?;
    volume.allocate(node, 0..len, false)?;
    fs.finish()?;
    Ok(path)
}

/// Mounts the volume and removes the file.
fn remove(volume: &Path, mount: impl FnOnce() -> anyhow::Result<Mount>) -> anyhow::Result<Run> {
    drop_caches(volume, None)?;
    let mount = mount()?;
    let (seconds, ()) = timed(|| Ok(fs::remove_file(mount.path().join(BIG))?))?;
    let (counters, _) = mount.finish()?;
    Ok(Run {
        seconds,
        counters,
        ..Run::default()
    })
}

/// Rewrites bitmap sectors unchanged, each made durable, until `PATIENCE` ends. Returns the number
/// of writes and the time in seconds.
fn replay(volume: &Path, writes: u64) -> io::Result<(u64, f64)> {
    const SECTOR: u64 = 512;
    let file = File::options().read(true).write(true).open(volume)?;
    let mut sector = [0; 512];
    let start = Instant::now();
    for n in 0..writes {
        let at = n / (SECTOR * 8) * SECTOR;
        file.read_exact_at(&mut sector, at)?;
        file.write_all_at(&sector, at)?;
        file.sync_data()?;
        if start.elapsed() >= PATIENCE {
            return Ok((n + 1, start.elapsed().as_secs_f64()));
        }
    }
    Ok((writes, start.elapsed().as_secs_f64()))
}
