//! Why a volume is not available: the process or the kernel driver that uses it.

use std::fmt;
use std::io;
use std::path::PathBuf;

use forerun_vfs::Error;

use super::holders::{Holder, Kind};

/// The error for a volume that a process or the kernel uses.
#[derive(Clone, Debug)]
pub struct InUse {
    by: By,
    wanted: Kind,
    /// Another writer has the volume, and no option overrides that.
    is_final: bool,
}

/// The user of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum By {
    /// Processes that hold locks.
    Holders(Vec<Holder>),
    /// A process that holds a lock but is not visible here.
    Unseen,
    /// A loop device.
    Loop {
        device: PathBuf,
        mounted: Option<PathBuf>,
    },
    /// A mount of this block device, or of another device with the same bytes.
    Mounted {
        device: Option<PathBuf>,
        on: PathBuf,
    },
    /// Another kernel driver, such as the device mapper, and its device.
    Driver(PathBuf),
    /// The kernel, or a process that opened a block device exclusively.
    Kernel,
}

impl By {
    /// Wraps the holders. Returns `None` if there are none.
    pub fn holders(holders: Vec<Holder>) -> Option<Self> {
        (!holders.is_empty()).then_some(Self::Holders(holders))
    }
}

impl InUse {
    /// Creates the error for a refused reader.
    pub const fn for_reading(by: By) -> Self {
        Self {
            by,
            wanted: Kind::Read,
            is_final: false,
        }
    }

    /// Creates the error for a refused writer.
    pub const fn for_writing(by: By) -> Self {
        Self {
            by,
            wanted: Kind::Write,
            is_final: false,
        }
    }

    /// Creates the error for a writer that another writer excludes.
    pub const fn by_writer(by: By) -> Self {
        Self {
            by,
            wanted: Kind::Write,
            is_final: true,
        }
    }

    /// Finds an `InUse` inside an error of the library.
    #[must_use]
    pub fn of(error: &Error) -> Option<&Self> {
        match error {
            Error::Io { source, .. } => source.get_ref()?.downcast_ref(),
            _ => None,
        }
    }

    /// Returns the processes that hold locks.
    #[must_use]
    pub fn holders(&self) -> &[Holder] {
        match &self.by {
            By::Holders(holders) => holders,
            By::Unseen | By::Loop { .. } | By::Mounted { .. } | By::Driver(_) | By::Kernel => &[],
        }
    }

    /// Returns whether a lock is the obstacle, which may end with its process.
    #[must_use]
    pub const fn is_lock(&self) -> bool {
        matches!(self.by, By::Holders(_) | By::Unseen)
    }

    /// Returns advice for the user.
    #[must_use]
    pub const fn hint(&self) -> Option<&'static str> {
        match (self.wanted, &self.by) {
            (Kind::Read, _) => {
                Some("--no-lock (mount: -o nolock) reads it anyway; the data may be inconsistent")
            }
            (Kind::Write, By::Holders(_) | By::Unseen) if !self.is_final => Some(
                "--break-lock (mount: -o break_lock) writes anyway; processes that read it may get inconsistent data",
            ),
            (Kind::Write, By::Loop { mounted: None, .. }) => {
                Some("detach the loop device first: losetup -d")
            }
            (Kind::Write, _) => None,
        }
    }
}

impl fmt::Display for InUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("in use: ")?;
        match &self.by {
            By::Holders(holders) => {
                let writes = holders.iter().any(|holder| holder.kind == Kind::Write);
                let purpose = if writes { "writing" } else { "reading" };
                write!(f, "held for {purpose} by ")?;
                let names: Vec<_> = holders.iter().map(ToString::to_string).collect();
                f.write_str(&names.join(", "))
            }
            By::Unseen => f.write_str("locked by a process that is not visible here"),
            By::Loop {
                device,
                mounted: Some(on),
            } => {
                let (device, on) = (device.display(), on.display());
                write!(f, "it backs {device}, which is mounted on {on}")
            }
            By::Loop {
                device,
                mounted: None,
            } => write!(f, "it backs {}, which can be written", device.display()),
            By::Mounted { device: None, on } => write!(f, "mounted on {}", on.display()),
            By::Mounted {
                device: Some(device),
                on,
            } => write!(f, "{} is mounted on {}", device.display(), on.display()),
            By::Driver(device) => write!(f, "{} uses it", device.display()),
            By::Kernel => f.write_str("the kernel or another process uses it exclusively"),
        }
    }
}

impl std::error::Error for InUse {}

impl From<InUse> for Error {
    fn from(in_use: InUse) -> Self {
        Self::io(0, 0, io::Error::new(io::ErrorKind::ResourceBusy, in_use))
    }
}
