use std::fmt;
use std::io;

use super::format::VERSION;

/// An undo file cannot be read, is damaged, or does not fit the volume.
#[derive(Debug)]
#[non_exhaustive]
pub enum UndoError {
    NotUndo,
    Version(u32),
    /// The file contradicts itself.
    Damaged {
        /// Offset in the undo file.
        at: u64,
        what: &'static str,
    },
    Length {
        expected: u64,
        found: u64,
    },
    /// The first sector matches neither its state before the changes nor that after them.
    OtherVolume,
    /// A sector matches neither its state before the changes nor that after them.
    Changed {
        offset: u64,
    },
    Read(io::Error),
    Volume {
        offset: u64,
        source: io::Error,
    },
    Write {
        /// Offset on the volume; `None` for a flush.
        offset: Option<u64>,
        source: io::Error,
    },
}

impl UndoError {
    /// Returns whether the volume differs from its state after the changes, so that only a forced
    /// [`UndoFile::restore`] writes to it.
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
