pub mod fsck;
pub mod label;
pub mod mkfs;
pub mod mount;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;

use super::{begin, complain, in_one_line};
use crate::args::{ImageArgs, SourceArgs};
use crate::error::{Failure, reason};
use crate::options::{Parsed, Refusal, print};

/// The version whose options and output are reproduced.
const VERSION: &str = "1.2.0";

fn print_version() {
    let forerun = env!("CARGO_PKG_VERSION");
    print(&format!(
        "exfatprogs version : {VERSION} (forerun {forerun})\n"
    ));
}

/// Responds to a refused command line. Returns the exit status; `mistake` is the status for usage
/// errors.
fn answer(refusal: Refusal, text: &str, mistake: u8) -> u8 {
    match refusal {
        Refusal::Help => {}
        Refusal::Version => print_version(),
        Refusal::Usage(message) if message.is_empty() => print_version(),
        Refusal::Usage(message) | Refusal::Told(message) => complain(&message),
    }
    // Without standard error, nothing can be reported.
    let _ = io::stderr().write_all(text.as_bytes());
    mistake
}

fn device_operand(operands: Vec<OsString>) -> Parsed<OsString> {
    let [device] =
        <[OsString; 1]>::try_from(operands).map_err(|_| Refusal::Usage(String::new()))?;
    Ok(device)
}

fn tell(failure: &Failure) {
    complain(&in_one_line(failure));
}

/// Reports a device that is missing or cannot be opened. Returns whether it can be opened.
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
