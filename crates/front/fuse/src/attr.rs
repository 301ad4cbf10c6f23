//! Attributes of a node for stat(2).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use forerun_vfs::{Device, FileType, Metadata, Timestamp, VolumeInfo};
use fuser::{Errno, FileAttr, INodeNo, ReplyXattr};

use crate::MountOptions;
use crate::id_map::IdMap;

/// Preferred request length in stat(2): the kernel's page.
const PREFERRED_IO: u32 = 4096;

/// `FAT_IOCTL_GET_ATTRIBUTES`: a number of 32 bits out.
pub const GET_FAT_ATTRIBUTES: u32 = 0x8004_7210;

/// Owners and permissions of the files in a mount.
///
/// `uid=` and `gid=` apply to everything. Without them the image's owners are shown. An image
/// without owners (romfs) belongs to the mounting user, as on a FAT medium: 0:0 for root, as with
/// the kernel's romfs, otherwise the calling user, whose files would else appear to be another
/// user's. Owners that the mount's user namespace does not map are shown as the mounting user too,
/// unless `unmapped=keep` leaves them to the kernel. `umask=` removes permission bits and adds
/// none, because formats without owners still distinguish programs from data. `fmask=` and `dmask=`
/// replace it for files and for directories.
#[derive(Clone, Debug)]
pub struct Ownership {
    uid: Option<u32>,
    gid: Option<u32>,
    /// Replaces unmapped owners; `None` shows all owners unchanged.
    squash: Option<Squash>,
    file_mask: u16,
    directory_mask: u16,
}

/// The owner shown for IDs that the user namespace does not map.
#[derive(Clone, Debug)]
struct Squash {
    users: IdMap,
    groups: IdMap,
    uid: u32,
    gid: u32,
}

impl Squash {
    fn new() -> Self {
        Self {
            users: IdMap::of_users(),
            groups: IdMap::of_groups(),
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        }
    }

    fn shown(&self, (uid, gid): (u32, u32)) -> (u32, u32) {
        let uid = self.users.shown(uid, self.uid);
        (uid, self.groups.shown(gid, self.gid))
    }
}

impl Ownership {
    pub fn new(options: &MountOptions, volume: &VolumeInfo) -> Self {
        let caller = !volume.has_owners;
        let uid = caller.then(|| rustix::process::geteuid().as_raw());
        let gid = caller.then(|| rustix::process::getegid().as_raw());
        Self {
            uid: options.uid.or(uid),
            gid: options.gid.or(gid),
            squash: options.squash_owners.then(Squash::new),
            file_mask: options.file_mask.or(options.umask).unwrap_or(0),
            directory_mask: options.directory_mask.or(options.umask).unwrap_or(0),
        }
    }

    pub fn attr(&self, number: u64, metadata: &Metadata) -> FileAttr {
        let time = system_time(metadata.mtime);
        let mask = match metadata.kind {
            FileType::Directory => self.directory_mask,
            _ => self.file_mask,
        };
        let owner = (metadata.uid, metadata.gid);
        let squash = self.squash.as_ref();
        let (uid, gid) = squash.map_or(owner, |squash| squash.shown(owner));
        FileAttr {
            ino: INodeNo(number),
            size: metadata.size,
            blocks: metadata.size.div_ceil(512),
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind: kind(metadata.kind),
            perm: metadata.mode & 0o7777 & !mask,
            nlink: metadata.nlink,
            uid: self.uid.unwrap_or(uid),
            gid: self.gid.unwrap_or(gid),
            rdev: device(metadata.device),
            blksize: PREFERRED_IO,
            flags: 0,
        }
    }
}

/// Returns attributes for a node of which only the directory entry is known. The kernel requests
/// the rest later.
pub const fn unknown(number: u64, kind: fuser::FileType) -> FileAttr {
    FileAttr {
        ino: INodeNo(number),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind,
        perm: 0,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: PREFERRED_IO,
        flags: 0,
    }
}

/// Answers GETXATTR and LISTXATTR. With `room` 0 the kernel asks for the length, otherwise for the
/// bytes.
pub fn reply_bytes(bytes: &[u8], room: u32, reply: ReplyXattr) {
    match u32::try_from(bytes.len()) {
        Ok(len) if room == 0 => reply.size(len),
        Ok(len) if len <= room => reply.data(bytes),
        _ => reply.error(Errno::ERANGE),
    }
}

pub const fn kind(kind: FileType) -> fuser::FileType {
    match kind {
        FileType::Directory => fuser::FileType::Directory,
        FileType::Regular => fuser::FileType::RegularFile,
        FileType::Symlink => fuser::FileType::Symlink,
        FileType::BlockDevice => fuser::FileType::BlockDevice,
        FileType::CharDevice => fuser::FileType::CharDevice,
        FileType::Fifo => fuser::FileType::NamedPipe,
        FileType::Socket => fuser::FileType::Socket,
    }
}

/// Packs a device number into Linux's 32-bit form: 12 bits of major in the middle, 20 bits of minor
/// around them.
const fn device(device: Device) -> u32 {
    let (major, minor) = (device.major & 0xfff, device.minor & 0xf_ffff);
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}

/// Converts a time. Times that `SystemTime` cannot hold become the epoch.
pub fn system_time(time: Timestamp) -> SystemTime {
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    let whole = if time.seconds < 0 {
        UNIX_EPOCH.checked_sub(seconds)
    } else {
        UNIX_EPOCH.checked_add(seconds)
    };
    let nanoseconds = Duration::from_nanos(u64::from(time.nanoseconds.min(999_999_999)));
    whole
        .and_then(|whole| whole.checked_add(nanoseconds))
        .unwrap_or(UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata() -> Metadata {
        Metadata {
            kind: FileType::Regular,
            mode: 0o4755,
            uid: 12,
            gid: 34,
            size: 513,
            nlink: 2,
            mtime: Timestamp {
                seconds: -1,
                nanoseconds: 250_000_000,
            },
            device: Device::default(),
        }
    }

    #[test]
    fn the_image_s_owners_hold_unless_told_otherwise() {
        let mut volume = VolumeInfo::new("test", 0, 1024);
        let owners = |options: &str, volume: &VolumeInfo| {
            let attr =
                Ownership::new(&MountOptions::parse(options).unwrap(), volume).attr(5, &metadata());
            (attr.uid, attr.gid, attr.perm)
        };
        assert_eq!(owners("", &volume), (12, 34, 0o4755));
        assert_eq!(owners("uid=7", &volume), (7, 34, 0o4755));
        assert_eq!(owners("gid=8,umask=077", &volume), (12, 8, 0o4700));
        assert_eq!(owners("umask=077,fmask=022", &volume), (12, 34, 0o4755));
        assert_eq!(owners("umask=022,dmask=077", &volume), (12, 34, 0o4755));
        volume.has_owners = false;
        let (uid, gid) = (
            rustix::process::geteuid().as_raw(),
            rustix::process::getegid().as_raw(),
        );
        assert_eq!(owners("", &volume), (uid, gid, 0o4755));
        assert_eq!(owners("uid=7,gid=8", &volume), (7, 8, 0o4755));
    }

    #[test]
    fn owners_that_the_user_namespace_lacks_are_the_mounting_user() {
        let volume = VolumeInfo::new("test", 0, 1024);
        let mut owners = Ownership::new(&MountOptions::default(), &volume);
        let squash = owners.squash.as_mut().unwrap();
        (squash.users, squash.groups) = (IdMap::default(), IdMap::default());
        (squash.uid, squash.gid) = (5, 6);
        let owner = |owners: &Ownership| {
            let attr = owners.attr(5, &metadata());
            (attr.uid, attr.gid)
        };
        assert_eq!(owner(&owners), (5, 6));
        owners.uid = Some(12345);
        assert_eq!(owner(&owners), (12345, 6));
        let keep = MountOptions::parse("unmapped=keep").unwrap();
        assert!(Ownership::new(&keep, &volume).squash.is_none());
    }

    #[test]
    fn sizes_and_times() {
        let attr = Ownership::new(&MountOptions::default(), &VolumeInfo::new("t", 0, 1024))
            .attr(5, &metadata());
        assert_eq!((attr.ino.0, attr.blocks, attr.nlink), (5, 2, 2));
        assert_eq!(attr.mtime, UNIX_EPOCH - Duration::from_millis(750));
        let absurd = Timestamp {
            seconds: i64::MAX,
            nanoseconds: u32::MAX,
        };
        let latest = system_time(absurd).duration_since(UNIX_EPOCH).unwrap();
        assert_eq!(
            (latest.as_secs(), latest.subsec_nanos()),
            (i64::MAX.unsigned_abs(), 999_999_999)
        );
    }

    #[test]
    fn device_numbers_as_linux_packs_them() {
        for (major, minor, expected) in [
            (8, 1, 0x0801),
            (259, 0x12345, 0x1231_0345),
            (0xfff, 0xf_ffff, 0xffff_ffff),
        ] {
            assert_eq!(device(Device { major, minor }), expected, "{major}:{minor}");
            assert_eq!(
                rustix::fs::makedev(major, minor) & 0xffff_ffff,
                u64::from(expected),
                "{major}:{minor}"
            );
        }
    }
}
