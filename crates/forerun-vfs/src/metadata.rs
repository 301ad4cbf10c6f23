//! What is known of a node besides its bytes.

/// Kind of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileType {
    /// Directory.
    Directory,
    /// Regular file.
    Regular,
    /// Symbolic link.
    Symlink,
    /// Block device.
    BlockDevice,
    /// Character device.
    CharDevice,
    /// Named pipe.
    Fifo,
    /// Unix domain socket.
    Socket,
}

impl FileType {
    /// The letter `ls -l` starts its line with.
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

    /// The name in JSON output.
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

/// Device number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Device {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

/// Time since the epoch; negative seconds lie before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Whole seconds.
    pub seconds: i64,
    /// Nanoseconds on top of them, below 1,000,000,000.
    pub nanoseconds: u32,
}

/// What `stat` tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Kind.
    pub kind: FileType,
    /// Permission bits with setuid, setgid and sticky: at most 0o7777.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes of a regular file or symbolic link; what the format says of a directory; else 0.
    pub size: u64,
    /// Names this node has, as far as the format keeps count; at least 1.
    pub nlink: u32,
    /// Last modification.
    pub mtime: Timestamp,
    /// Device number of a device node; 0:0 for the others.
    pub device: Device,
}
