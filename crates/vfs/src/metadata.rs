use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileType {
    Directory,
    Regular,
    Symlink,
    BlockDevice,
    CharDevice,
    Fifo,
    Socket,
}

impl FileType {
    /// Returns the letter with which `ls -l` starts its line.
    #[must_use]
    pub const fn letter(self) -> char {
        match self {
            Self::Directory => 'd',
            Self::Regular => '-',
            Self::Symlink => 'l',
            Self::BlockDevice => 'b',
            Self::CharDevice => 'c',
            Self::Fifo => 'p',
            Self::Socket => 's',
        }
    }

    /// Returns the name in JSON output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Directory => "directory",
            Self::Regular => "file",
            Self::Symlink => "symlink",
            Self::BlockDevice => "block_device",
            Self::CharDevice => "char_device",
            Self::Fifo => "fifo",
            Self::Socket => "socket",
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Device {
    pub major: u32,
    pub minor: u32,
}

impl Device {
    /// Unpacks a number as Linux packs it into 32 bits: 12 bits of the major number, with 8 bits of
    /// the minor number below and 12 above.
    #[must_use]
    pub const fn unpack(packed: u32) -> Self {
        Self {
            major: (packed >> 8) & 0xfff,
            minor: (packed & 0xff) | ((packed >> 12) & 0xf_ff00),
        }
    }

    /// Packs the number into 32 bits as Linux does. Returns `None` if it does not fit.
    #[must_use]
    pub const fn pack(self) -> Option<u32> {
        let Self { major, minor } = self;
        if major > 0xfff || minor > 0xf_ffff {
            return None;
        }
        Some((minor & 0xff) | (major << 8) | ((minor & !0xff) << 12))
    }
}

/// Time since the epoch. Earlier times have negative seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    pub seconds: i64,
    /// Below 1,000,000,000; added to the seconds.
    pub nanoseconds: u32,
}

/// The properties of a node that `stat` shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    pub kind: FileType,
    /// Permission bits with setuid, setgid and sticky: at most 0o7777.
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    /// Length in bytes of a regular file or symbolic link; for a directory the format's own value;
    /// otherwise 0.
    pub size: u64,
    /// Number of names of the node, as the image counts them; 1 if the format stores no count. 0
    /// for an open node without a name. A wrong count in the image is returned unchanged, as the
    /// kernel's drivers do.
    pub nlink: u32,
    pub mtime: Timestamp,
    /// Device number of a device node; 0:0 for other nodes.
    pub device: Device,
}

impl Metadata {
    #[must_use]
    pub const fn is_dir(&self) -> bool {
        matches!(self.kind, FileType::Directory)
    }

    #[must_use]
    pub const fn is_file(&self) -> bool {
        matches!(self.kind, FileType::Regular)
    }

    #[must_use]
    pub const fn is_symlink(&self) -> bool {
        matches!(self.kind, FileType::Symlink)
    }

    /// Returns the modification time, or `None` if the system's clock cannot represent it.
    #[must_use]
    pub fn modified(&self) -> Option<SystemTime> {
        let seconds = Duration::from_secs(self.mtime.seconds.unsigned_abs());
        let whole = match self.mtime.seconds {
            0.. => UNIX_EPOCH.checked_add(seconds),
            _ => UNIX_EPOCH.checked_sub(seconds),
        };
        whole?.checked_add(Duration::from_nanos(self.mtime.nanoseconds.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_the_epoch_are_times_too() {
        for (seconds, nanoseconds, after) in [(1, 5, true), (0, 0, true), (-2, 500_000_000, false)]
        {
            let metadata = Metadata {
                kind: FileType::Regular,
                mode: 0o644,
                uid: 0,
                gid: 0,
                size: 0,
                nlink: 1,
                mtime: Timestamp {
                    seconds,
                    nanoseconds,
                },
                device: Device::default(),
            };
            let modified = metadata.modified().unwrap();
            let expected = if after {
                UNIX_EPOCH + Duration::new(seconds.unsigned_abs(), nanoseconds)
            } else {
                UNIX_EPOCH - Duration::from_millis(1500)
            };
            assert_eq!(modified, expected, "{seconds}");
        }
    }

    #[test]
    fn device_numbers() {
        for (packed, major, minor) in [
            (0x103, 1, 3),
            (0x800, 8, 0),
            (0xffff_ffff, 0xfff, 0xf_ffff),
            (0x1000_0001, 0, 0x1_0001),
        ] {
            let device = Device { major, minor };
            assert_eq!(Device::unpack(packed), device, "{packed:#x}");
            assert_eq!(device.pack(), Some(packed));
        }
        for (major, minor) in [(0x1000, 0), (0, 0x10_0000)] {
            assert_eq!(Device { major, minor }.pack(), None);
        }
    }
}
