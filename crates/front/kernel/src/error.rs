//! Errors of kernel mounts.

use std::path::PathBuf;
use std::{fmt, io};

use forerun::unstable::disk::Container;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("mountpoint {}: {source}", path.display())]
    Mountpoint { path: PathBuf, source: io::Error },
    #[error("mountpoint {} is not a directory", path.display())]
    NotADirectory { path: PathBuf },
    /// The image, or another file that the mount needs, cannot be opened.
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error(
        "mounting {fstype} by the kernel needs root with CAP_SYS_ADMIN, outside of user namespaces"
    )]
    NotPermitted { fstype: &'static str },
    #[error("this kernel has no driver for {fstype}, built in or as a module")]
    NoDriver { fstype: &'static str },
    /// forerun does not use the kernel for this format.
    #[error("{format} images are not mounted by the kernel")]
    UnknownFormat { format: &'static str },
    /// The kernel lacks the mount system calls fsopen(2) and fsmount(2).
    #[error("this kernel lacks the mount API of Linux 5.2")]
    NoMountApi,
    #[error("{}", attempts(.0))]
    Refused(Vec<Refusal>),
    /// The kernel cannot mount this image from a file, and [`Route::File`](crate::Route::File)
    /// excludes a loop device.
    #[error("{}: the kernel mounts a file without a loop device only if it is an EROFS image from its first byte on", path.display())]
    NotFromFile { path: PathBuf },
    #[error("{}: the kernel cannot read an image in this kind of file: {container}", path.display())]
    Scattered { path: PathBuf, container: Container },
    #[error("making a making a making a making a loop device for {}: {source}", path.display())]
    Loop { path: PathBuf, source: io::Error },
    #[error(
        "a loop device of {} shows {shown} bytes of it, in sectors of 512; the image has {image}",
        path.display()
    )]
    Cut {
        path: PathBuf,
        shown: u64,
        image: u64,
    },
    #[error("the kernel mounts a composefs image only with its objects: objects=DIR")]
    NoObjects,
    /// A writable layer over an image that is mounted without an overlayfs.
    #[error("upperdir: the kernel mounts {format} without an overlayfs")]
    NoOverlay { format: &'static str },
    /// The options ask for digest checks, but fs-verity does not protect the objects.
    #[error(
        "verity: fs-verity does not protect {}, so the kernel would refuse to open the objects",
        object.display()
    )]
    NoVerity { object: PathBuf },
    #[error("mounting on {}: {source}", path.display())]
    Attach { path: PathBuf, source: io::Error },
    #[error(
        "{} is in use: a file is open or a process has its working directory there",
        path.display()
    )]
    Busy { path: PathBuf },
    #[error("{} is covered by another mount", path.display())]
    Covered { path: PathBuf },
    #[error("{} is mounted inside {}", inner.display(), path.display())]
    HoldsMount { path: PathBuf, inner: PathBuf },
    #[error("unmounting {}: {source}", path.display())]
    Umount { path: PathBuf, source: io::Error },
}

/// An attempt that the kernel refused.
#[derive(Debug)]
#[non_exhaustive]
pub struct Refusal {
    /// The driver, and the file or device that it was asked to mount.
    pub what: String,
    /// The step that failed: an option with its value, or the mount itself.
    pub step: String,
    pub error: io::Error,
    /// The driver's messages, from the context's log and from the kernel log.
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
