//! Reasons to refuse an undo file.

use std::fmt;
use std::io;

use super::format::VERSION;

/// An undo file cannot be read, is damaged, or does not fit the volume.
#[derive(Debug)]
#[non_exhaustive]
pub enum UndoError {
    /// The bytes are not those of an undo file.
    NotUndo,
    /// A version that this reader does not know.
    Version(u32),
    /// The file contradicts itself.
    Damaged {
        /// Offset in the undo file.
        at: u64,
        what: &'static str,
    },
    /// The file was made for a volume of another length.
    Length {
        /// Length of the volume that the file was made for.
        expected: u64,
        /// Length of this volume.
        found: u64,
    },
    /// The first sector is neither as before the changes nor as after them.
    OtherVolume,
    /// A sector is neither as before the changes nor as after them.
    Changed {
        /// Offset on the volume.
        offset: u64,
    },
    /// The undo file could not be read.
    Read(io::Error),
    /// The volume could not be read.
    Volume {
        /// Offset on the volume.
        offset: u64,
        source: io::Error,
    },
    /// The volume could not be written or flushed.
    Write {
        /// Offset on the volume; `None` for a flush.
        offset: Option<u64>,
        source: io::Error,
    },
}

impl UndoError {
    /// Returns whether the volume differs from its state after the changes: [`UndoFile::restore`]
    /// writes to it only with `force`.
    ///
    /// [`UndoFile::restore`]: super::UndoFile::restore
    #[must_use]
    pub const fn is_of_volume(&self) -> bool {
        matches!(self, Self::OtherVolume | Self::Changed { .. })
    }
}

impl fmt::Display for UndoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotUndo => f.write_str("not an undo file"),
            Self::Version(found) => write!(
                f,
                "undo file of version {found}; this forerun knows version {VERSION}"
            ),
            Self::Damaged { at, what } => {
                write!(f, "the undo file is damaged at offset {at:#x}: {what}")
            }
            Self::Length { expected, found } => write!(
                f,
                "the undo file is for a volume of {expected} bytes, this one has {found}"
            ),
            Self::OtherVolume => f.write_str(
                "the undo file is for another volume, or the volume was changed since: its first \
                 sector is neither as it was before nor as it was left",
            ),
            Self::Changed { offset } => write!(
                f,
                "the volume was changed since: the sector at offset {offset:#x} is neither as it was \
                 before nor as it was left"
            ),
            Self::Read(source) => write!(f, "reading the undo file: {source}"),
            Self::Volume { offset, source } => {
                write!(f, "reading the volume at offset {offset:#x}: {source}")
            }
            Self::Write {
                offset: Some(offset),
                source,
            } => write!(f, "writing the volume at offset {offset:#x}: {source}"),
            Self::Write {
                offset: None,
                source,
            } => write!(f, "flushing the volume: {source}"),
        }
    }
}

impl std::error::Error for UndoError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Read(source) | Self::Volume { source, .. } | Self::Write { source, .. } => {
                Some(source)
            }
            _ => None,
        }
    }
}
