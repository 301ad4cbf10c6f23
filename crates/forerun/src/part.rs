//! The part of a device that holds a volume.

use std::sync::Arc;

use forerun_io::{ReadAt, Window};
use forerun_vfs::{Error, Result};

use crate::OpenOptions;

/// Returns the part of the device that the options select.
pub fn part<S: ReadAt>(whole: S, options: &OpenOptions) -> Result<Arc<Window<S>>> {
    let window = Window::new(whole, options.offset, options.size);
    let window = window.map_err(|error| Error::io(options.offset, 0, error))?;
    Ok(Arc::new(window))
}
