//! Why the kernel did not mount an image.

use std::path::PathBuf;
use std::{fmt, io};

use forerun::unstable::disk::Container;

/// Why there is no mount, or why it stays.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The mountpoint cannot be used.
    #[error("mountpoint {}: {source}", path.display())]
    Mountpoint { path: PathBuf, source: io::Error },
    /// The mountpoint is no directory.
    #[error("mountpoint {} is not a directory", path.display())]
    NotADirectory { path: PathBuf },
    /// A file that the mount is to be made of cannot be used.
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    /// The caller is not allowed to have the kernel mount an image.
    #[error(
        "mounting {fstype} by the kernel needs root with CAP_SYS_ADMIN, outside of user namespaces"
    )]
    NotPermitted {
        /// The kernel's name of the filesystem.
        fstype: &'static str,
    },
    /// The kernel has no driver for the format.
    #[error("this kernel has no driver for {fstype}, built in or as a module")]
    NoDriver {
        /// The kernel's name of the filesystem.
        fstype: &'static str,
    },
    /// The kernel is not asked to mount images of that format.
    #[error("{format} images are not mounted by the kernel")]
    UnknownFormat {
        /// The format, in our terms.
        format: &'static str,
    },
    /// The kernel is older than the system calls used here.
    #[error("this kernel lacks the mount API of Linux 5.2")]
    NoMountApi,
    /// The kernel tried, and refused.
    #[error("{}", attempts(.0))]
    Refused(Vec<Refusal>),
    /// The kernel reads no such image from a file, and the options allow no other way.
    #[error("{}: the kernel mounts a file without a loop device only if it is an EROFS image from its first byte on", path.display())]
    NotFromFile { path: PathBuf },
    /// The image does not lie in the file as it is.
    #[error("{}: the kernel cannot read an image in this kind of file: {container}", path.display())]
    Scattered { path: PathBuf, container: Container },
    /// The loop device could not be set up.
    #[error("making a making a making a loop device for {}: {source}", path.display())]
    Loop { path: PathBuf, source: io::Error },
    /// A loop device would not show all of the image.
    #[error(
        "a loop device of {} shows {shown} bytes of it, in sectors of 512; the image has {image}",
        path.display()
    )]
    Cut {
        path: PathBuf,
        /// Bytes that can be read through the loop device.
        shown: u64,
        /// Bytes of the image.
        image: u64,
    },
    /// A composefs image without its objects.
    #[error("the kernel mounts a composefs image only with its objects: objects=DIR")]
    NoObjects,
    /// Digests were to be checked, which the kernel only does with fs-verity.
    #[error(
        "verity: the kernel checks objects by fs-verity, which does not protect {}; it would refuse to open them",
        object.display()
    )]
    NoVerity {
        /// An object of the store.
        object: PathBuf,
    },
    /// Everything is ready, but cannot be attached to the directory.
    #[error("mounting on {}: {source}", path.display())]
    Attach { path: PathBuf, source: io::Error },
    /// The mount is in use.
    #[error(
        "{} is in use: a file is open or a process has its working directory there",
        path.display()
    )]
    Busy { path: PathBuf },
    /// Another mount is on top.
    #[error("{} is covered by another mount", path.display())]
    Covered { path: PathBuf },
    /// Another mount is inside it.
    #[error("{} is mounted inside {}", inner.display(), path.display())]
    HoldsMount { path: PathBuf, inner: PathBuf },
    /// The mount could not be taken down.
    #[error("unmounting {}: {source}", path.display())]
    Umount { path: PathBuf, source: io::Error },
}

/// The kernel's answer to one attempt.
#[derive(Debug)]
#[non_exhaustive]
pub struct Refusal {
    /// The driver that was tried, and the file or device that it was to mount.
    pub what: String,
    /// At what: an option with its value, or the mount itself.
    pub step: String,
    /// The error of the call.
    pub error: io::Error,
    /// The driver's messages, from the log of the mount and from the kernel's.
    pub words: Vec<String>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.what)?;
        if !self.step.is_empty() {
            write!(f, ", {}", self.step)?;
        }
        write!(f, ": {}", self.error)?;
        if !self.words.is_empty() {
            write!(f, " ({})", self.words.join("; "))?;
        }
        Ok(())
    }
}

fn attempts(attempts: &[Refusal]) -> String {
    let texts: Vec<_> = attempts.iter().map(Refusal::to_string).collect();
    format!("the kernel refused: {}", texts.join("; then "))
}
