//! Compares a whole layer with its digest.

use forerun_vfs::{Error, Result};

/// Waits until a whole layer was fetched and compared with its digest.
pub fn ensure_whole(layer: &forerun_remote::RemoteImage) -> Result<()> {
    let whole = layer.ensure_whole(&mut || ());
    whole.map_err(|error| Error::io(0, 0, std::io::Error::other(error)))
}
