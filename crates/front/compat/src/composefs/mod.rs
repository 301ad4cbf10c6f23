pub mod info;
pub mod mkfs;
pub mod mount;

use super::{complain, in_one_line};
use crate::error::Failure;

const DONE: u8 = 0;
const FAILED: u8 = 1;

/// Prints a failure with the name of the program.
fn tell(program: &str, failure: &Failure) {
    complain(&format!("{program}: {}", in_one_line(failure)));
}
