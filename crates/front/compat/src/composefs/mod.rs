//! `mkcomposefs`, `mount.composefs` and `composefs-info`.

pub mod info;
pub mod mkfs;
pub mod mount;

use std::io::{self, Write};

use super::getopt::NotFollowed;
use super::{complain, in_one_line};
use crate::error::Failure;

/// The version whose options these are.
const VERSION: &str = "1.0.8";

const DONE: u8 = 0;
const FAILED: u8 = 1;

/// Tells a failure behind the name of the program.
fn tell(program: &str, failure: &Failure) {
    complain(&format!("{program}: {}", in_one_line(failure)));
}

/// Answers a command line that is not followed. Returns the exit status.
fn not_followed(reason: NotFollowed, program: &str, usage: &str) -> u8 {
    match reason {
        NotFollowed::Help => print(usage),
        NotFollowed::Version => {
            let forerun = env!("CARGO_PKG_VERSION");
            print(&format!("{program} {VERSION} (forerun {forerun})\n"))
        }
        NotFollowed::Mistake(message) => {
            complain(&format!("{program}: {message}"));
            // Without standard error nothing can be told.
            let _ = io::stderr().write_all(usage.as_bytes());
            FAILED
        }
    }
}

/// Prints text that was asked for. Returns the exit status.
fn print(text: &str) -> u8 {
    // Without standard output nothing can be told.
    let _ = io::stdout().write_all(text.as_bytes());
    DONE
}
