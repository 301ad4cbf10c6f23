//! `mkfs.exfat`, `fsck.exfat`, `exfatlabel` and `mount.exfat`.

pub mod fsck;
pub mod label;
pub mod mkfs;
pub mod mount;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;

use super::{complain, in_one_line};
use crate::args::{Global, ImageArgs, SourceArgs};
use crate::context::Context;
use crate::error::{Failure, reason};
use crate::{log, secrets};

/// The version whose options and output these are.
const VERSION: &str = "1.2.0";

/// Begins a run that prints nothing of its own.
fn begin() -> Context {
    log::init(0, false, false);
    secrets::warn();
    Context::new(Global {
        quiet: true,
        ..Global::default()
    })
}

/// Prints the version, as these programs do before anything else.
fn print_version() {
    let forerun = env!("CARGO_PKG_VERSION");
    print(&format!(
        "exfatprogs version : {VERSION} (forerun {forerun})\n"
    ));
}

fn print(text: &str) {
    // Without standard output nothing can be told.
    let _ = io::stdout().write_all(text.as_bytes());
}

/// Prints a usage. Returns the exit status that is given.
fn usage(text: &str, status: u8) -> u8 {
    // Without standard error nothing can be told.
    let _ = io::stderr().write_all(text.as_bytes());
    status
}

/// Tells a failure.
fn tell(failure: &Failure) {
    complain(&in_one_line(failure));
}

/// Tells that a device is not there or cannot be opened. Returns whether it can.
fn can_open(device: &OsString) -> bool {
    match std::fs::File::open(device) {
        Ok(_) => true,
        Err(error) => {
            let (shown, why) = (device.to_string_lossy(), reason(&error));
            complain(&format!("open failed : {shown}, {why}"));
            false
        }
    }
}

/// Returns the arguments that open a volume.
fn image_args(device: &OsString) -> ImageArgs {
    ImageArgs {
        image: PathBuf::from(device),
        source: SourceArgs {
            format: Some("exfat".to_string()),
            ..SourceArgs::default()
        },
        ..ImageArgs::default()
    }
}

#[cfg(test)]
mod tests {
    use crate::compat::getopt::OptNames;

    /// Checks that docs/compat.md names every option in the section with this title.
    pub fn documented(title: &str, table: &[OptNames]) {
        let text = include_str!("../../../../../../docs/compat.md");
        let (_, text) = text.split_once(title).unwrap();
        let text = text.split("\n## ").next().unwrap();
        for (short, long, _) in table {
            for name in [format!("`-{short}"), format!("--{long}")] {
                let is_none = name.ends_with('\0') || name == "--";
                assert!(is_none || text.contains(&name), "{title}: {name}");
            }
        }
    }
}
