//! How the kernel uses a file or block device: loop devices, mounts, other drivers.
//!
//! Changes to a mounted filesystem stay in the page cache of its device until it is unmounted, so
//! the file or device below differs. None of these uses is a lock, so they are looked up in `/sys`
//! and `/proc/self/mountinfo`. Only devices and mounts visible to this process are found.

use std::ffi::OsString;
use std::fs::{self, File};
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use forerun_sys::mount_table::{MountEntry, mounts};

use super::in_use::By;

/// Most levels of devices on top of other devices.
const DEPTH: u32 = 4;
/// Unit of sizes in `/sys`, in bytes.
const SECTOR: u64 = 512;
const DELETED: &[u8] = b" (deleted)";

/// Device number and inode of a file.
type FileId = ((u32, u32), u64);

#[derive(Clone, Debug)]
struct Device {
    sys: PathBuf,
    number: (u32, u32),
}

/// Returns the use of `range` of a file or block device that excludes a writer.
pub fn of(file: &File, range: Range<u64>) -> Option<By> {
    let all = mounts().unwrap_or_default();
    if let Some(device) = Device::of(file) {
        let drivers = device.family(&range, 0);
        let driver = || {
            let others = drivers.iter().filter(|other| !other.is_part_of(&device));
            others.map(|other| By::Driver(other.path())).next()
        };
        return mounted(&device, &range, &all, false).or_else(driver);
    }
    let loops = Loop::all_of(file);
    let mut loops = loops.iter().filter_map(|found| {
        let part = found.overlap(&range)?;
        let is_written = !found.is_read_only();
        found.mounted(&part, &all, false).or_else(|| {
            is_written.then(|| By::Loop {
                device: found.device.path(),
                mounted: None,
            })
        })
    });
    loops.next()
}

/// Returns the use that may write to `range` of a file or block device.
pub fn that_write(file: &File, range: Range<u64>) -> Option<By> {
    let all = mounts().unwrap_or_default();
    if let Some(device) = Device::of(file) {
        return mounted(&device, &range, &all, true);
    }
    let loops = Loop::all_of(file);
    let mut loops = loops
        .iter()
        .filter_map(|found| found.mounted(&found.overlap(&range)?, &all, true));
    loops.next()
}

/// Returns the path of the file behind a loop device.
pub fn backing_file(device: &File) -> Option<PathBuf> {
    let device = Device::of(device)?;
    // For a partition, use its disk.
    let disk = if device.is_partition() {
        device.sys.parent()?.to_path_buf()
    } else {
        device.sys
    };
    let name = backing_name(&disk)?;
    (!name.as_os_str().as_bytes().ends_with(DELETED)).then_some(name)
}

/// Finds a mount of `range` of a device, or of a device on top of it.
fn mounted(device: &Device, range: &Range<u64>, all: &[MountEntry], writing: bool) -> Option<By> {
    device.family(range, 0).iter().find_map(|member| {
        let on = member.mount(all, writing)?;
        let device = (member.number != device.number).then(|| member.path());
        Some(By::Mounted { device, on })
    })
}

impl Device {
    fn of(file: &File) -> Option<Self> {
        let number = super::block_device(file).ok().flatten()?;
        let sys = fs::canonicalize(format!("/sys/dev/block/{}:{}", number.0, number.1));
        // Without /sys, only the number is known.
        let sys = sys.unwrap_or_default();
        Some(Self { sys, number })
    }

    fn in_sys(sys: PathBuf) -> Option<Self> {
        let number = fs::read_to_string(sys.join("dev")).ok()?;
        let (major, minor) = number.trim().split_once(':')?;
        let number = (major.parse().ok()?, minor.parse().ok()?);
        Some(Self { sys, number })
    }

    fn path(&self) -> PathBuf {
        let name = self.sys.file_name().unwrap_or_default();
        // /sys replaces a slash in a device name by an exclamation mark.
        let name = name.to_string_lossy().replace('!', "/");
        Path::new("/dev").join(name)
    }

    fn is_partition(&self) -> bool {
        self.sys.join("partition").exists()
    }

    /// Returns whether both are the same device, or one is a partition of the other.
    fn is_part_of(&self, other: &Self) -> bool {
        let is_below = |a: &Self, b: &Self| a.sys.parent() == Some(&b.sys);
        self.number == other.number || is_below(self, other) || is_below(other, self)
    }

    /// Returns the device, its disk, its partitions that overlap `range`, and the devices on top of
    /// them.
    fn family(&self, range: &Range<u64>, depth: u32) -> Vec<Self> {
        let mut all = vec![self.clone()];
        if depth == 0
            && self.is_partition()
            && let Some(disk) = self.sys.parent()
        {
            all.extend(Self::in_sys(disk.to_path_buf()));
        }
        for entry in entries(&self.sys) {
            if entry.join("partition").exists() && overlaps(&partition(&entry), range) {
                all.extend(Self::in_sys(entry));
            }
        }
        if depth == DEPTH {
            return all;
        }
        let holders: Vec<_> = all
            .iter()
            .flat_map(|member| entries(&member.sys.join("holders")))
            .filter_map(|holder| Self::in_sys(fs::canonicalize(holder).ok()?))
            .collect();
        for holder in holders {
            all.extend(holder.family(&(0..u64::MAX), depth + 1));
        }
        all
    }

    /// Returns where the device is mounted. With `writing`, considers only writable mounts.
    fn mount(&self, all: &[MountEntry], writing: bool) -> Option<PathBuf> {
        let is_source = |entry: &MountEntry| {
            // Filesystems on several devices, and userspace filesystems, have a device number of
            // their own.
            let source = Path::new(&entry.source);
            let metadata = source
                .starts_with("/dev")
                .then(|| fs::metadata(source).ok());
            metadata.flatten().is_some_and(|metadata| {
                let number = metadata.rdev();
                let number = (rustix::fs::major(number), rustix::fs::minor(number));
                metadata.file_type().is_block_device() && number == self.number
            })
        };
        let mut found = all
            .iter()
            .filter(|entry| !(writing && entry.is_read_only()))
            .filter(|entry| entry.device == self.number || is_source(entry));
        found.next().map(|entry| entry.mount_point.clone())
    }
}

/// A loop device of a file.
struct Loop {
    device: Device,
    /// The part of the file that the device maps.
    range: Range<u64>,
}

impl Loop {
    fn all_of(file: &File) -> Vec<Self> {
        let Ok(metadata) = file.metadata() else {
            return Vec::new();
        };
        let number = metadata.dev();
        let device = (rustix::fs::major(number), rustix::fs::minor(number));
        let id = (device, metadata.ino());
        let devices = entries(Path::new("/sys/block")).into_iter();
        devices
            .filter(|sys| sys.join("loop").is_dir() && is_behind(sys, &id))
            .filter_map(|sys| {
                let value = |name: &str| number_in(&sys.join("loop").join(name)).unwrap_or(0);
                let start = value("offset");
                let end = match value("sizelimit") {
                    0 => u64::MAX,
                    len => start + len,
                };
                let device = Device::in_sys(fs::canonicalize(&sys).ok()?)?;
                let range = start..end;
                Some(Self { device, range })
            })
            .collect()
    }

    fn is_read_only(&self) -> bool {
        number_in(&self.device.sys.join("ro")) == Some(1)
    }

    /// Converts `range` of the file to the overlapping part of the device.
    fn overlap(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let start = range.start.max(self.range.start);
        let end = range.end.min(self.range.end);
        let base = self.range.start;
        (start < end).then(|| start - base..end - base)
    }

    fn mounted(&self, part: &Range<u64>, all: &[MountEntry], writing: bool) -> Option<By> {
        let mut family = self.device.family(part, 0).into_iter();
        family.find_map(|member| {
            Some(By::Loop {
                mounted: Some(member.mount(all, writing)?),
                device: member.path(),
            })
        })
    }
}

/// Returns whether the file is behind the loop device in `sys`.
fn is_behind(sys: &Path, file: &FileId) -> bool {
    let Some(path) = backing_name(sys) else {
        return false;
    };
    let id = |path: &Path| {
        let metadata = fs::metadata(path).ok()?;
        let device = metadata.dev();
        let device = (rustix::fs::major(device), rustix::fs::minor(device));
        Some((device, metadata.ino()))
    };
    // The kernel reports the current path, unless the file was deleted or is not visible here.
    match id(&path) {
        Some(found) => found == *file,
        None => {
            let name = sys.file_name().unwrap_or_default();
            file_behind(&Path::new("/dev").join(name)).as_ref() == Some(file)
        }
    }
}

/// Asks a loop device for its file, which may be deleted, or have another name in another mount
/// namespace. Only root and the group `disk` may do so.
fn file_behind(device: &Path) -> Option<FileId> {
    let device = File::open(device).ok()?;
    let (number, inode) = forerun_sys::loop_device::file_behind(device.as_fd()).ok()?;
    Some((
        (rustix::fs::major(number), rustix::fs::minor(number)),
        inode,
    ))
}

/// Returns the path of the file behind a loop device, as `/sys` reports it.
fn backing_name(sys: &Path) -> Option<PathBuf> {
    let mut name = fs::read(sys.join("loop/backing_file")).ok()?;
    if name.last() == Some(&b'\n') {
        name.pop();
    }
    Some(PathBuf::from(OsString::from_vec(name)))
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

fn number_in(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

fn partition(sys: &Path) -> Range<u64> {
    let value = |name: &str| number_in(&sys.join(name)).unwrap_or(0);
    let start = value("start") * SECTOR;
    start..start + value("size") * SECTOR
}

const fn overlaps(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}
