//! `exfatlabel`: shows and changes the label of exFAT volumes, and shows their serial numbers.

use std::ffi::OsString;

use forerun::unstable::exfat::Exfat;

use super::{answer, begin, can_open, image_args, print_version, tell};
use crate::context::Context;
use crate::error::{Failure, Result};
use crate::escape::escape;
use crate::exit::Exit;
use crate::options::Effect::{Help, Set, Version};
use crate::options::{Opt, Refusal, getopt, options};
use crate::output::Output;
use crate::{Commands, Start, complain};

const DONE: u8 = 0;
const MISTAKE: u8 = 1;
const NO_VOLUME: u8 = 234;
const FAILED: u8 = 255;
const LABEL_MAX: usize = 11;

pub const USAGE: &str = "\
Usage: exfatlabel [-i] DEVICE [LABEL]
\t-i | --volume-serial   show the serial number
\t-V | --version, -h | --help
";

/// The options. The flag selects the serial number instead of the label.
pub const TABLE: &[Opt<bool>] = options! {
    "-h" | "--help" => Help;
    "-V" | "--version" => Version;
    "-i" | "--volume-serial" => Set(|serial| *serial = true);
};

pub fn run(start: &Start<'_>) -> u8 {
    let mut serial = false;
    let operands = match getopt(
        &start.name.to_string_lossy(),
        TABLE,
        start.words,
        &mut serial,
    ) {
        Ok(operands) => operands,
        Err(Refusal::Version) => {
            print_version();
            return MISTAKE;
        }
        Err(refusal) => return answer(refusal, USAGE, MISTAKE),
    };
    let (device, label) = match (operands.as_slice(), serial) {
        ([device], _) => (device, None),
        ([_, _], true) => {
            print_version();
            complain("-i: a serial number cannot be changed; mkfs sets it");
            return FAILED;
        }
        ([device, label], false) => (device, Some(label.to_string_lossy())),
        _ => return answer(Refusal::Usage(String::new()), USAGE, MISTAKE),
    };
    print_version();
    if !can_open(device) {
        return FAILED;
    }
    let context = begin();
    let done = match label {
        Some(label) if label.encode_utf16().count() > LABEL_MAX => {
            complain("input string is too long\nfailed to encode volume label");
            return FAILED;
        }
        Some(label) => set(&context, start.commands, device, &label),
        None => show(&context, device, serial),
    };
    let Err(failure) = done else {
        return DONE;
    };
    match failure.exit {
        Exit::Format => {
            complain("failed to find exfat file system");
            NO_VOLUME
        }
        _ => {
            tell(&failure);
            FAILED
        }
    }
}

fn show(context: &Context, device: &OsString, serial: bool) -> Result<()> {
    let image = context.open(&image_args(device))?;
    let mut out = Output::stdout()?;
    if serial {
        let volume = image.driver::<Exfat>();
        let volume = volume.ok_or_else(|| Failure::usage("is no exFAT volume"))?;
        // The original prints no leading zeros.
        out.line(format!("volume serial : {:#x}", volume.serial()))?;
    } else {
        let label = &image.reader().fs().volume().label;
        if !label.is_empty() {
            out.line(format!("label: {}", escape(label)))?;
        }
    }
    out.finish()
}

fn set(context: &Context, commands: &Commands, device: &OsString, label: &str) -> Result<()> {
    (commands.label)(context, image_args(device), label.to_string())?;
    let mut out = Output::stdout()?;
    out.line(format!("new label: {}", escape(label.as_bytes())))?;
    out.finish()
}
