//! Undo files: the bytes that a volume held before a tool changed them.
//!
//! [`UndoDevice`] stands between a tool and a volume, and does not depend on the tool. It saves the
//! old bytes of each sector in an undo file before that sector is written for the first time.
//! [`UndoFile`] reads such a file and restores the bytes. docs/undo-file.md describes the bytes of
//! the file.
//!
//! **Order.** Writes wait in memory until the tool flushes, or 4 MiB are pending. Then the old
//! bytes are appended to the undo file, the undo file is synced, and only then the volume is
//! written. So one flush of the tool costs one sync of the undo file, and a power cut at any moment
//! leaves an undo file with the old bytes of all sectors that may have changed. Its last batch may
//! be torn; that batch has not written to the volume.
//!
//! **Each sector is saved once**, with its original contents. So records can be restored in any
//! order, and the file need not be kept in memory. Each write adds sums of the new sectors. A
//! sector that matches neither its original contents nor one of these sums was changed later, and
//! the volume is not written.
//!
//! Sums detect accidents. They do not protect against a forged undo file, which can name any sector
//! of the volume.

mod device;
mod error;
mod file;
mod format;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod ranges;
#[cfg(test)]
mod tests;

pub use device::{UndoDevice, UndoLog};
pub use error::UndoError;
pub use file::{Restored, UndoFile};
