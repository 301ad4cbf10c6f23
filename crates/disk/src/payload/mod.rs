//! Images inside other files: appended to executables, or in containers.
//!
//! The search runs only if no format knows the first bytes and the caller gave no offset. It
//! returns a place: the formats probe the bytes there as for any other image. A container is read
//! only as far as needed to find the place; its contents are not run, unpacked or verified.

mod elf;
mod error;
mod sif;

use forerun_io::{ReadAt, usize_from};
use forerun_vfs::{Corrupt, Error, Result};

use crate::Container;
use error::Check;

pub use sif::{NewSif, Sif, SifOverlay, ZERO_TIME, architectures, is_sif, may_hold_layers};

/// The place of a possible image in a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload {
    /// The kind of container.
    pub container: Container,
    /// Offset of the place.
    pub offset: u64,
    /// `None`: to the end of the file.
    pub size: Option<u64>,
}

/// Bytes of a file that identify a container.
const HEAD: usize = 128;

/// Returns the places of possible images, the likeliest first. Returns none if `file` is not a
/// container, or ends with the container.
///
/// # Errors
/// [`Error::Corrupt`] for a damaged container, [`Error::Unsupported`] for an AppImage of type 1, [`Error::Io`].
pub fn find(file: &dyn ReadAt) -> Result<Vec<Payload>> {
    let head = read(file, 0, HEAD.min(usize_from(file.len())))?;
    if is_sif(&head) {
        return Ok(vec![Sif::parse(file, &head)?.root()?]);
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

/// Returns whether a file that starts with `head` may hold an image behind other data: a SIF file, or an ELF program
/// such as an AppImage.
#[must_use]
pub fn may_contain(head: &[u8]) -> bool {
    is_sif(head) || !matches!(elf::kind(head), elf::ProgramKind::Other)
}

/// Returns where an ELF program ends, which is where an AppImage has its image. Returns `None` for
/// other files, and for programs without a table of sections.
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
