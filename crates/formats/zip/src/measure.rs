//! Recognises an archive in a file of unknown contents.

use forerun_io::ReadAt;
use forerun_vfs::{Measured, Result};

use crate::end::End;

/// Reads only the end of the archive, not its directory.
pub fn measure(source: &dyn ReadAt) -> Result<Measured> {
    let end = End::read(source)?;
    Ok(Measured {
        len: Some(end.len),
        ..Measured::default()
    })
}
