//! composefs: the attributes that say where the contents of a file are, and whole images.

use forerun_composefs::fuzzing;

use super::{Made, assert_located, named};
use crate::images::read_all;

pub use fuzzing::attributes;

/// Exercises the whole driver on an image, then reads the image as a user does.
pub fn walk(bytes: &[u8]) {
    assert_located(&fuzzing::walk(bytes));
    read_all("composefs", bytes, fuzzing::limits());
}

pub fn images() -> Made {
    Ok(named(fuzzing::seeds()?))
}

pub fn attribute_seeds() -> Made {
    Ok(named(fuzzing::attribute_seeds()))
}
