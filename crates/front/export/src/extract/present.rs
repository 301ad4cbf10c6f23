//! Existing entries in the target, for `--skip-existing`.
//!
//! A run sets an entry's time last, so an entry with the image's type, size and time is finished. A
//! killed run leaves files that lack their last bytes or their time. Such a file is a prefix of the
//! image's file and is recreated. Any other file does not come from an earlier run and is never
//! replaced.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use forerun_io::{u64_from, usize_from};
use forerun_vfs::{FileType, Timestamp};
use rustix::fs::{AtFlags, FileType as HostType, Mode, OFlags, Stat};

use super::plan::{Item, Plan};
use super::{ExtractJob, ExtractReport};
use crate::content::CHUNK;

/// What exists under an entry's name in the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Present {
    Nothing,
    /// The entry is complete.
    Finished,
    /// The entry is a prefix of the image's entry.
    Unfinished,
    Other,
}

impl ExtractJob<'_> {
    /// Removes finished files from the plan, and unfinished ones from the target.
    pub(super) fn skip_files(&self, plan: &mut Plan<'_>, report: &mut ExtractReport) {
        if self.options.skip_existing {
            plan.files.retain(|item| !self.skips(item, report));
        }
    }

    /// Returns whether an entry is finished, and counts it. Deletes an unfinished one.
    pub(super) fn skips(&self, item: &Item<'_>, report: &mut ExtractReport) -> bool {
        if !self.options.skip_existing || self.is_stopped() {
            return false;
        }
        // Creating the entry reports the error.
        let Ok(dir) = self.directories.get(item.dir) else {
            return false;
        };
        match self.present(item, &dir) {
            Present::Finished => {
                self.made.note_name(item, &dir);
                report.skipped += 1;
                self.progress.advance(item.entry.metadata.size, 1);
                true
            }
            Present::Unfinished => {
                // If this fails, creating the entry reports an error.
                let _ = rustix::fs::unlinkat(&dir, item.name, AtFlags::empty());
                false
            }
            Present::Nothing | Present::Other => false,
        }
    }

    /// Compares the existing node under an entry's name with the entry.
    pub(super) fn present(&self, item: &Item<'_>, dir: &OwnedFd) -> Present {
        let Ok(stat) = rustix::fs::statat(dir, item.name, AtFlags::SYMLINK_NOFOLLOW) else {
            return Present::Nothing;
        };
        let metadata = &item.entry.metadata;
        if HostType::from_raw_mode(stat.st_mode) != host_type(metadata.kind) {
            return Present::Other;
        }
        let is_timed = is_time(&stat, metadata.mtime);
        let is_part = match metadata.kind {
            FileType::Regular => {
                let len = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
                if len == metadata.size && is_timed {
                    return Present::Finished;
                }
                len <= metadata.size && self.is_prefix(item, dir, len)
            }
            FileType::Symlink => {
                let target = self.reader.fs().read_link(item.entry.node).ok();
                let found = rustix::fs::readlinkat(dir, item.name, Vec::new()).ok();
                target.is_some() && target == found.map(std::ffi::CString::into_bytes)
            }
            FileType::BlockDevice | FileType::CharDevice => {
                let number = rustix::fs::makedev(metadata.device.major, metadata.device.minor);
                stat.st_rdev == number
            }
            FileType::Fifo | FileType::Socket | FileType::Directory => true,
        };
        match (is_part, is_timed) {
            (true, true) if metadata.kind != FileType::Regular => Present::Finished,
            (true, _) => Present::Unfinished,
            (false, _) => Present::Other,
        }
    }

    /// Returns whether a file of `len` bytes in the target is a prefix of the image's file.
    fn is_prefix(&self, item: &Item<'_>, dir: &OwnedFd, len: u64) -> bool {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let Ok(file) = rustix::fs::openat(dir, item.name, flags, Mode::empty()) else {
            return false;
        };
        let file = File::from(file);
        let mut bytes = vec![0; usize_from(len.min(CHUNK))];
        let mut at = 0;
        while at < len && !self.is_stopped() {
            let wanted = usize_from((len - at).min(CHUNK));
            let Ok(data) = self.reader.read(item.entry.node, at, wanted) else {
                return false;
            };
            let Some(found) = bytes
                .get_mut(..data.len())
                .filter(|found| !found.is_empty())
            else {
                return false;
            };
            if file.read_exact_at(found, at).is_err() || *found != *data {
                return false;
            }
            at += u64_from(data.len());
        }
        at >= len
    }
}

const fn host_type(kind: FileType) -> HostType {
    match kind {
        FileType::Regular => HostType::RegularFile,
        FileType::Directory => HostType::Directory,
        FileType::Symlink => HostType::Symlink,
        FileType::BlockDevice => HostType::BlockDevice,
        FileType::CharDevice => HostType::CharacterDevice,
        FileType::Fifo => HostType::Fifo,
        FileType::Socket => HostType::Socket,
    }
}

/// Granularities in nanoseconds to which filesystems round down times: NTFS, UDF, exFAT, ext3, FAT.
const GRAINS: [i128; 5] = [100, 1_000, 10_000_000, 1_000_000_000, 2_000_000_000];

/// Returns whether the modification time is `mtime`, up to the target filesystem's granularity.
fn is_time(stat: &Stat, mtime: Timestamp) -> bool {
    let found = i128::from(stat.st_mtime) * 1_000_000_000 + i128::from(stat.st_mtime_nsec);
    let wanted = i128::from(mtime.seconds) * 1_000_000_000 + i128::from(mtime.nanoseconds);
    found == wanted
        || GRAINS
            .iter()
            .any(|grain| found == wanted - wanted.rem_euclid(*grain))
}
