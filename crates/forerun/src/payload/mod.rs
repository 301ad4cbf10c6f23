//! Images inside other files: appended to executables, or in containers.
//!
//! The search runs only if no format knows the first bytes and the caller gave no offset. It
//! returns a place, not yet an image: the formats probe the bytes there as for any other image. A
//! container is read only as far as needed to find the place; its contents are not run, unpacked or
//! verified.

mod elf;
mod error;
mod sif;

use std::fmt;

use forerun_io::{ReadAt, usize_from};
use forerun_vfs::{Corrupt, Error, Result};

pub use error::Check;

/// The kind of file that contains an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Container {
    /// An AppImage of type 2: an executable with the image behind it.
    AppImage,
    /// Any other executable with an image behind it.
    Elf,
    /// A file in the Singularity Image Format.
    Sif,
    /// An Android sparse image.
    AndroidSparse,
    /// A flash dump with volumes of UBI.
    Ubi,
    /// A compressed file, with the name of the compression.
    Compressed(&'static str),
    /// The disk of a virtual machine, with the name of its format. Images in it are not read.
    VirtualDisk(&'static str),
}

impl Container {
    /// Returns a short stable name, for JSON output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AppImage => "appimage",
            Self::Elf => "elf",
            Self::Sif => "sif",
            Self::AndroidSparse => "android-sparse",
            Self::Ubi => "ubi",
            Self::Compressed(name) | Self::VirtualDisk(name) => name,
        }
    }

    /// Returns whether the bytes of the image lie in the file one after the other.
    #[must_use]
    pub const fn is_contiguous(self) -> bool {
        matches!(self, Self::AppImage | Self::Elf | Self::Sif)
    }
}

impl fmt::Display for Container {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Compressed(name) => return write!(f, "{name} file"),
            Self::VirtualDisk(name) => return write!(f, "{name} image"),
            Self::AndroidSparse => "Android sparse image",
            Self::Ubi => "UBI flash dump",
            Self::AppImage => "AppImage (type 2)",
            Self::Elf => "ELF executable",
            Self::Sif => "SIF (Singularity Image Format)",
        })
    }
}

/// The place of a possible image in a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload {
    pub container: Container,
    pub offset: u64,
    /// `None`: to the end of the file.
    pub size: Option<u64>,
}

/// Bytes of a file that identify a container.
const HEAD: usize = 128;

/// Returns the places of possible images, the likeliest first. Returns none if `file` is no
/// container, or has no bytes behind its own.
pub fn find(file: &dyn ReadAt) -> Result<Vec<Payload>> {
    let head = read(file, 0, HEAD.min(usize_from(file.len())))?;
    if sif::is_sif(&head) {
        return Ok(vec![sif::find(file, &head)?]);
    }
    match elf::kind(&head) {
        elf::ProgramKind::Other => Ok(Vec::new()),
        elf::ProgramKind::AppImage1 => Err(Error::Unsupported(
            "an AppImage of type 1, which is an ISO 9660 image".into(),
        )),
        elf::ProgramKind::AppImage2 => elf::find(file, &head, Container::AppImage),
        // Executables are many, and few carry an image: a damaged one counts as having none.
        elf::ProgramKind::Elf => match elf::find(file, &head, Container::Elf) {
            Err(Error::Corrupt(_)) => Ok(Vec::new()),
            found => found,
        },
    }
}

/// Returns whether a file that starts with `head` may be a container.
#[cfg(feature = "tar")]
pub fn may_contain(head: &[u8]) -> bool {
    sif::is_sif(head) || !matches!(elf::kind(head), elf::ProgramKind::Other)
}

/// Returns where an ELF program ends, which is where an AppImage has its image. Returns nothing for other files, and
/// for programs without a table of sections.
///
/// # Errors
/// [`Error::Corrupt`] for a program that is cut off or has a damaged header, [`Error::Io`].
pub fn program_end(file: &dyn ReadAt) -> Result<Option<u64>> {
    let head = read(file, 0, HEAD.min(usize_from(file.len())))?;
    match elf::kind(&head) {
        elf::ProgramKind::Other => Ok(None),
        _ => elf::end(file, &head),
    }
}

/// Reads a part of the file, which the caller knows to lie in it.
fn read(file: &dyn ReadAt, offset: u64, len: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    let read = file.read_exact_at(offset, &mut bytes);
    read.map_err(|error| Error::io(offset, len, error))?;
    Ok(bytes)
}

/// Creates the error of a failed check of the container at byte `offset` of it.
fn corrupt(container: &'static str, offset: u64, check: Check) -> Error {
    Corrupt::new(container, None, offset, check).into()
}
