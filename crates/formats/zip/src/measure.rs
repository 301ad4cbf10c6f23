//! Whether an archive begins at a place: for files of unknown contents.

use forerun_io::ReadAt;
use forerun_vfs::{Measured, Result};

use crate::end::End;

/// Reads the end of the archive, and nothing of its directory.
///
/// # Errors
/// The errors of [`End::read`].
pub fn measure(source: &dyn ReadAt) -> Result<Measured> {
    let end = End::read(source)?;
    Ok(Measured {
        len: Some(end.len),
        label: Vec::new(),
    })
}
