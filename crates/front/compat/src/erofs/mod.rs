pub mod dump;
pub mod fsck;
pub mod fuse;
mod merge;
pub mod mkfs;
mod mkfs_options;
mod stats;
pub mod usage;

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use super::{complain, image_limits};
use crate::args::{ImageArgs, SourceArgs};
use crate::error::Failure;
use crate::exit::Exit;
use crate::options::{Parsed, Refusal};

/// Returns the only operand. `end` is appended to the message about a second operand.
fn image_operand(operands: Vec<OsString>, end: &str) -> Parsed<OsString> {
    let mut operands = operands.into_iter();
    let message = match (operands.next(), operands.next()) {
        (Some(image), None) => return Ok(image),
        (None, _) => "missing argument: IMAGE".to_string(),
        (_, Some(more)) => format!("unexpected argument: {}{end}", more.to_string_lossy()),
    };
    Err(Refusal::Usage(format!("<E> erofs: {message}")))
}

fn tell(failure: &Failure) {
    complain(&format!("<E> erofs: {}", super::in_one_line(failure)));
}

/// Prints the reason why an image was not opened.
fn tell_unopened(image: &OsString, failure: &Failure) {
    let shown = image.to_string_lossy();
    match failure.exit {
        Exit::Source => {
            complain(&format!("<E> erofs_io: failed to open({shown})."));
            complain("<E> erofs: failed to open image file");
        }
        Exit::Format => {
            complain("<E> erofs: cannot find valid erofs superblock");
            complain("<E> erofs: failed to read superblock");
        }
        _ => tell(failure),
    }
}

/// Returns the arguments that open an image with its extra devices.
fn image_args(image: &OsStr, devices: &[OsString], offset: u64) -> ImageArgs {
    ImageArgs {
        image: PathBuf::from(image),
        source: SourceArgs {
            format: Some("erofs".to_string()),
            offset,
            device: devices.iter().map(PathBuf::from).collect(),
            ..SourceArgs::default()
        },
        limits: image_limits(),
        ..ImageArgs::default()
    }
}
