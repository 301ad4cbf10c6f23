//! Images inside other files: appended to executables, or in containers.
//!
//! The search runs only if no format recognises the first bytes and the caller gave no offset. It
//! returns a location, and the formats probe the bytes there like those of any other image. A
//! container is read only as far as needed to find the location; its contents are not run, unpacked
//! or verified.

mod elf;
mod error;
mod sif;

use forerun_io::{ReadAt, usize_from};
use forerun_vfs::{Corrupt, Error, Result};

use crate::Container;
use error::Check;

pub use sif::{NewSif, Sif, SifOverlay, ZERO_TIME, architectures, is_sif, may_hold_layers};

/// The location of a possible image in a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload {
    pub container: Container,
    /// Offset of the possible image.
    pub offset: u64,
    /// `None` means up to the end of the file.
    pub size: Option<u64>,
}

/// Bytes of a file that identify a container.
const HEAD: usize = 128;

/// Returns the locations of possible images, the likeliest first. Returns none if `file` is not a
/// container, or ends with the container. AppImages of type 1 are [`Error::Unsupported`].
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
        // Executables are common, and few contain an image: a damaged one counts as having none.
        elf::ProgramKind::Elf => match elf::find(file, &head, Container::Elf) {
            Err(Error::Corrupt(_)) => Ok(Vec::new()),
            found => found,
        },
    }
}

/// Returns whether a file that starts with `head` may contain an image after other data: a SIF
/// file, or an ELF program such as an AppImage.
#[must_use]
pub fn may_contain(head: &[u8]) -> bool {
    is_sif(head) || !matches!(elf::kind(head), elf::ProgramKind::Other)
}

/// Returns the end of an ELF program, where an AppImage has its image. Returns `None` for other
/// files, and for programs without a section table. Fails with [`Error::Corrupt`] for a truncated
/// program or a damaged header.
pub fn program_end(file: &dyn ReadAt) -> Result<Option<u64>> {
    let head = read(file, 0, HEAD.min(usize_from(file.len())))?;
    match elf::kind(&head) {
        elf::ProgramKind::Other => Ok(None),
        _ => elf::end(file, &head),
    }
}

/// Reads a range that lies inside the file.
fn read(file: &dyn ReadAt, offset: u64, len: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    let read = file.read_exact_at(offset, &mut bytes);
    read.map_err(|error| Error::io(offset, len, error))?;
    Ok(bytes)
}

/// Returns the error for a check that the container failed at byte `offset`.
fn corrupt(container: &'static str, offset: u64, check: Check) -> Error {
    Corrupt::new(container, None, offset, check).into()
}
