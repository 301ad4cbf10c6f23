//! The output file of a command's picture, which is written whole or not at all.

use std::io::Write as _;
use std::path::Path;

use crate::error::Result;
use crate::interrupt;
use crate::target::Target;

/// `-` is standard output.
pub fn target(path: Option<&Path>, force: bool, what: &str) -> Result<Option<Target>> {
    let Some(path) = path else {
        return Ok(None);
    };
    interrupt::defer();
    Target::create(path, force, what).map(Some)
}

pub fn write(mut target: Target, picture: &str) -> Result<()> {
    let written = target.file().write_all(picture.as_bytes());
    written.map_err(|error| target.failed(&error))?;
    target.commit()
}
