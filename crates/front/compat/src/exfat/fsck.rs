//! `fsck.exfat`: checks and repairs exFAT volumes.

use std::ffi::OsString;
use std::path::Path;

use forerun::Image;
use forerun_export::{CheckOptions, CheckSummary, check};

use super::{answer, begin, can_open, device_operand, image_args, print_version, tell};
use crate::args::ImageArgs;
use crate::context::Context;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::options::Effect::{Help, Nothing, Set, Version, Word};
use crate::options::{Opt, Parsed, Refusal, getopt, options, print};
use crate::progress::Progress;
use crate::{Commands, RepairCall, Start, complain, in_one_line};

const CLEAN: u8 = 0;
const REPAIRED: u8 = 1;
const LEFT: u8 = 4;
const FAILED: u8 = 8;
const MISTAKE: u8 = 16;

pub const USAGE: &str = "\
Usage: fsck.exfat [OPTIONS] DEVICE
\t-n | --repair-no     check, and write nothing [default]
\t-r | --repair        ask before each kind of repair
\t-y | --repair-yes    make all repairs that lose no data
\t-p | --repair-auto, -a   the same
\t-s | --rescue        save lost clusters as files
\t-V | --version, -v | --verbose, -h | --help
";

pub const TABLE: &[Opt<FsckExfat>] = options! {
    "-h" | "--help" => Help;
    "-V" | "--version" => Version;
    "-v" | "--verbose" => Nothing;
    "-n" | "--repair-no" => Word(|call, _, _| call.ask_for(Mend::No));
    "-r" | "--repair" => Word(|call, _, _| call.ask_for(Mend::Ask));
    "-y" | "--repair-yes" | "-p" | "--repair-auto" | "-a" => Word(|call, _, _| call.ask_for(Mend::Yes));
    "-s" | "--rescue" => Set(|call| call.rescue = true);
};

/// The kind of repair that is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mend {
    No,
    Ask,
    Yes,
}

/// A valid command line.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FsckExfat {
    device: OsString,
    mend: Option<Mend>,
    rescue: bool,
}

impl FsckExfat {
    fn ask_for(&mut self, mend: Mend) -> Parsed {
        if self.mend.is_some_and(|other| other != mend) {
            return Err(Refusal::Help);
        }
        self.mend = Some(mend);
        Ok(())
    }
}

fn parse(name: &str, words: &[OsString]) -> Parsed<FsckExfat> {
    let mut call = FsckExfat::default();
    call.device = device_operand(getopt(name, TABLE, words, &mut call)?)?;
    Ok(call)
}

pub fn run(start: &Start<'_>) -> u8 {
    let call = match parse(&start.name.to_string_lossy(), start.words) {
        Ok(call) => call,
        Err(refusal) => return answer(refusal, USAGE, MISTAKE),
    };
    print_version();
    if !can_open(&call.device) {
        let shown = call.device.to_string_lossy();
        complain(&format!("failed to open {shown}. -1"));
        return FAILED;
    }
    let context = begin();
    let args = image_args(&call.device);
    let done = match call.mend {
        None | Some(Mend::No) => look(&context, &args),
        Some(Mend::Ask | Mend::Yes) => mend(&context, start.commands, &call, args),
    };
    done.unwrap_or_else(|failure| {
        match failure.exit {
            Exit::Format => complain(
                "Bad fs_name in boot sector, which does not describe a valid exfat filesystem",
            ),
            _ => tell(&failure),
        }
        FAILED
    })
}

/// Checks the image without repairing it, prints the verdict, and returns the exit status.
fn look(context: &Context, args: &ImageArgs) -> Result<u8> {
    let image = context.open(args)?;
    let summary = findings(context, &image);
    verdict(&args.image, &summary);
    Ok(match summary.errors {
        0 => CLEAN,
        _ => LEFT,
    })
}

/// Checks the metadata, and prints the findings.
fn findings(context: &Context, image: &Image) -> CheckSummary {
    let options = CheckOptions { quick: true };
    let progress = Progress::new(context, "checking", 0);
    check(image.reader(), options, &progress, &mut |finding| {
        let failure = Failure::from(finding.error);
        let failure = match &finding.path {
            Some(path) => failure.at(path),
            None => failure,
        };
        let level = if finding.fatal { "ERROR" } else { "WARNING" };
        complain(&format!("{level}: {}", in_one_line(&failure)));
    })
}

fn verdict(device: &Path, summary: &CheckSummary) {
    let state = match summary.errors {
        0 => "clean",
        _ => "corrupted",
    };
    let directories = summary.entries.saturating_sub(summary.files);
    let (device, files) = (device.display(), summary.files);
    print(&format!(
        "{device}: {state}. directories {directories}, files {files}\n"
    ));
}

/// Repairs the volume, and prints the verdict. Returns the exit status.
fn mend(context: &Context, commands: &Commands, call: &FsckExfat, image: ImageArgs) -> Result<u8> {
    let repair = RepairCall {
        image: image.clone(),
        yes: call.mend == Some(Mend::Yes),
        lost_found: call.rescue,
    };
    let exit = (commands.repair)(context, repair)?;
    let opened = context.open(&image)?;
    let summary = findings(context, &opened);
    verdict(&image.image, &summary);
    Ok(match (exit, summary.errors) {
        (Exit::Ok, 0) => CLEAN,
        (Exit::Repaired, 0) => REPAIRED,
        _ => LEFT,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines() {
        let words = |line: &[&str]| line.iter().map(OsString::from).collect::<Vec<_>>();
        let call = parse("x", &words(&["-as", "d", "-v"]));
        let expected = FsckExfat {
            device: "d".into(),
            mend: Some(Mend::Yes),
            rescue: true,
        };
        assert_eq!(call, Ok(expected));
        for line in [
            &["-n", "-y", "d"][..],
            &["-b", "d"],
            &["d", "e"],
            &[],
            &["-V"],
        ] {
            assert!(parse("x", &words(line)).is_err(), "{line:?}");
        }
    }
}
