//! zip archives as images.

use forerun_zip::fuzzing;

use super::{Made, assert_located, named};
use crate::images::read_all;

/// Exercises the whole driver on an archive, then reads the archive as a user does.
pub fn walk(bytes: &[u8]) {
    assert_located(&fuzzing::walk(bytes));
    read_all("zip", bytes, fuzzing::limits());
}

pub fn archives() -> Made {
    Ok(named(fuzzing::seeds()))
}
