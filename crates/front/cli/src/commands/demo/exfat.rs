//! exFAT: a large file removed from a volume with dirsync. forerun writes each changed sector once; the
//! legacy way, a write for each cluster, is replayed on a volume of the same kind.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fs, io};

use forerun::build::{ExfatOptions, Tree};
use forerun::unstable::{VolumeMut, WriteOptions};
use forerun::vfs::{FileType, NewNode, Timestamp};
use forerun::{OpenOptions, Writer};
use forerun_fuse::MountOptions;
use forerun_io::{Counter, StatsSnapshot};

use super::exfat_replay::Replay;
use super::measure::{Kit, LEGACY_TIME};
use super::model::{DemoPart, PartName, Row, RowRole, extrapolate, ratio};
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::size;

/// Bytes of a cluster, the default for volumes of that size.
const CLUSTER: u32 = 128 << 10;
/// Length of the file for a largest file of 250 MiB or more.
const MOST: u64 = 4 << 30;
const BIG: &str = "big";

fn file_len(size: u64) -> u64 {
    let cluster = u64::from(CLUSTER);
    let scaled = u128::from(MOST) * u128::from(size) / (250 << 20);
    let len = u64::try_from(scaled).unwrap_or(MOST).min(MOST);
    (len - len % cluster).max(cluster)
}

/// Describes the part.
pub fn begin(kit: &Kit) -> DemoPart {
    let len = file_len(kit.size);
    let what = format!(
        "Removes a file of {} in {} of 128 KiB with dirsync: durable when rm returns.",
        size::human(len),
        size::counted(len / u64::from(CLUSTER), "cluster", "clusters")
    );
    DemoPart::new(PartName::Exfat, what)
}

/// Measures it.
pub fn measure(kit: &Kit, part: &mut DemoPart) -> Result<()> {
    let len = file_len(kit.size);
    let volume = make(kit, "ours.exfat", len)?;
    let other = make(kit, "legacy.exfat", len)?;
    let (time, stats) = remove_file(kit, &volume)?;
    let replay = Replay::run(&other, LEGACY_TIME);
    let replay = replay.map_err(|error| Failure::output(&error).of(other.display()))?;
    if replay.written == replay.total {
        same_space(&volume, &other)?;
    }
    part.rows = vec![
        Row {
            id: "each_cluster",
            role: RowRole::Legacy,
            what: "legacy: a write for each cluster".to_string(),
            seconds: replay.time.as_secs_f64() * ratio(replay.total, replay.written),
            count: Some(extrapolate(replay.written, replay.total, replay.written)),
            extrapolated: replay.written < replay.total,
        },
        Row {
            id: "each_sector",
            role: RowRole::Ours,
            what: "forerun: each sector once".to_string(),
            seconds: time.as_secs_f64(),
            count: Some(stats.get(Counter::Writes)),
            extrapolated: false,
        },
    ];
    part.notes.push(format!(
        "forerun wrote {} and flushed {}. The legacy way is a replay of the writes that Linux made \
         before the patch, each of them made durable.",
        size::human(stats.get(Counter::WrittenBytes)),
        size::counted(stats.get(Counter::Flushes), "time", "times"),
    ));
    super::remove(&volume);
    super::remove(&other);
    Ok(())
}

/// Makes a volume that has one file of `len` bytes, in adjacent clusters. Nothing is written in it.
fn make(kit: &Kit, name: &str, len: u64) -> Result<PathBuf> {
    let path = kit.place.path(name);
    let options = ExfatOptions {
        // As much again stays free.
        size: Some(len.saturating_mul(2).saturating_add(64 << 20)),
        cluster_size: Some(CLUSTER),
        ..ExfatOptions::default()
    };
    super::files::write(&Writer::Exfat(options), &Tree::default(), &path)?;
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

/// Removes the file in a mount, or by the library where nothing can be mounted. The time is until the
/// volume is closed, when everything that the removal changes has been written.
fn remove_file(kit: &Kit, path: &Path) -> Result<(Duration, StatsSnapshot)> {
    kit.drop_caches(path)?;
    let how = WriteOptions {
        dirsync: true,
        ..WriteOptions::default()
    };
    let opened = VolumeMut::open(path, &OpenOptions::default(), &how)?;
    let volume = Arc::clone(opened.volume());
    let stats = || volume.observer().stats().snapshot();
    let mut options = MountOptions::default();
    options.write = how;
    let mounted =
        kit.mounted(|dir| forerun_fuse::mount_volume(Arc::clone(&volume), dir, &options))?;
    let before = stats();
    let start = Instant::now();
    match mounted {
        Some(mut mounted) => {
            let file = mounted.mount.path().join(BIG);
            let failed = |error: io::Error| Failure::output(&error).of(file.display());
            fs::remove_file(&file).map_err(failed)?;
            let unmounted = mounted.mount.unmount();
            unmounted.map_err(|error| failed(io::Error::other(error)))?;
            let ended = mounted.mount.wait();
            ended.map_err(|error| failed(io::Error::other(error)))?;
        }
        None => {
            let fs = volume.fs();
            fs.unlink(fs.root(), BIG.as_bytes())?;
            fs.finish()?;
        }
    }
    Ok((start.elapsed(), stats().since(&before)))
}

/// Fails where the two volumes have not the same room after the removal.
fn same_space(one: &Path, other: &Path) -> Result<()> {
    let free = |path: &Path| -> Result<u64> {
        let opened = VolumeMut::open(path, &OpenOptions::default(), &WriteOptions::default())?;
        Ok(opened.volume().fs().space()?.free)
    };
    let (one, other) = (free(one)?, free(other)?);
    if one != other {
        let message =
            format!("{one} clusters are free after the removal, {other} after the replay");
        return Err(Failure::new(Exit::Image, "mismatch", message));
    }
    Ok(())
}
