//! `fsck.erofs`: checks EROFS images, and extracts them.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::Arc;

use forerun::Image;
use forerun::vfs::{ContentsBelow, Error};
use forerun_export::{CheckOptions, ExtractOptions, Loss, Owners, Selection, check, extract};

use super::{image_args, image_operand, tell, tell_unopened, usage};
use crate::confine::capabilities;
use crate::context::Context;
use crate::error::{Failure, Result, reason};
use crate::exit::Exit;
use crate::interrupt::{self, Graceful};
use crate::options::Effect::{Help, Nothing, Perhaps, Set, Value, Version};
use crate::options::{Manual, Opt, Parsed, Refusal, getopt, options};
use crate::output::Output;
use crate::place::OutputDir;
use crate::progress::Progress;
use crate::source::PreparedImage;
use crate::{begin, complain, in_one_line};

const DONE: u8 = 0;
const FAILED: u8 = 1;

const MANUAL: Manual<'_> = Manual {
    version: "fsck.erofs 1.8",
    usage: usage::FSCK,
    mistake: FAILED,
};

pub const TABLE: &[Opt<FsckErofs>] = options! {
    "-h" | "--help" => Help;
    "-V" | "--version" => Version;
    "-d" => Value("", |_, _| Ok(()));
    "-p" => Set(|call| call.ratio = true);
    "--device" => Value("", |call, value| value.push(&mut call.devices));
    "--extract" => Perhaps(|call, value| {
        call.whole = true;
        if let Some(dest) = value.filter(|dest| !dest.is_empty()) {
            call.dest = Some(dest.into());
        }
    });
    "--offset" => Value("<E> erofs: invalid disk offset", |call, value| {
        call.offset = value.number()?;
        Ok(())
    });
    "--overwrite" => Set(|call| call.overwrite = true);
    "--force" => Set(|call| call.force = true);
    "--preserve" => Set(|call| (call.owner, call.perms) = (Some(true), Some(true)));
    "--preserve-owner" => Set(|call| call.owner = Some(true));
    "--preserve-perms" => Set(|call| call.perms = Some(true));
    "--no-preserve" => Set(|call| (call.owner, call.perms) = (Some(false), Some(false)));
    "--no-preserve-owner" => Set(|call| call.owner = Some(false));
    "--no-preserve-perms" => Set(|call| call.perms = Some(false));
    "--xattrs" => Set(|call| call.xattrs = Some(true));
    "--no-xattrs" => Set(|call| call.xattrs = Some(false));
    "--no-sbcrc" => Nothing;
};

#[derive(Debug, Default, PartialEq, Eq)]
pub struct FsckErofs {
    image: OsString,
    devices: Vec<OsString>,
    offset: u64,
    whole: bool,
    dest: Option<OsString>,
    ratio: bool,
    overwrite: bool,
    force: bool,
    owner: Option<bool>,
    perms: Option<bool>,
    xattrs: Option<bool>,
}

fn parse(name: &str, words: &[OsString]) -> Parsed<FsckErofs> {
    let mut call = FsckErofs::default();
    let operands = getopt(name, TABLE, words, &mut call)?;
    call.image = image_operand(operands, "")?;
    if call.dest.as_ref().is_some_and(|dest| dest == "/") && !call.force {
        let message = "<E> erofs: --extract=/ must be used together with --force";
        return Err(Refusal::Usage(message.to_string()));
    }
    Ok(call)
}

pub fn run(name: &OsStr, words: &[OsString]) -> u8 {
    let call = match parse(&name.to_string_lossy(), words) {
        Ok(call) => call,
        Err(refusal) => return MANUAL.answer(refusal),
    };
    let context = begin();
    let args = image_args(&call.image, &call.devices, call.offset);
    let opened = context.prepare(&args);
    let done = opened.and_then(|prepared| match &call.dest {
        Some(dest) => unpack(&context, &call, Path::new(dest), prepared),
        None => {
            context.confine(&prepared.sandbox());
            let image = context.open_prepared(prepared, None)?;
            look(&context, &call, &image)
        }
    });
    match done {
        Ok(true) => DONE,
        Ok(false) => FAILED,
        Err(failure) => {
            match failure.exit {
                Exit::Source | Exit::Format => tell_unopened(&call.image, &failure),
                _ => tell(&failure),
            }
            FAILED
        }
    }
}

/// Checks the image. Returns whether it is sound.
fn look(context: &Context, call: &FsckErofs, image: &Image) -> Result<bool> {
    let options = CheckOptions { quick: !call.whole };
    let progress = Progress::new(context, "checking", 0);
    let mut is_sound = true;
    check(image.reader(), options, &progress, &mut |finding| {
        // The original ignores composefs files, whose contents are elsewhere.
        if matches!(&finding.error, Error::Corrupt(corrupt) if corrupt.check().is::<ContentsBelow>())
        {
            return;
        }
        is_sound &= !finding.fatal;
        let failure = Failure::from(finding.error);
        let failure = match &finding.path {
            Some(path) => failure.at(path),
            None => failure,
        };
        let level = if finding.fatal { "E" } else { "W" };
        complain(&format!("<{level}> erofs: {}", in_one_line(&failure)));
    });
    if call.ratio && is_sound {
        print_ratio(image)?;
    }
    if !is_sound {
        complain("<E> erofs: Found some filesystem corruption");
    }
    Ok(is_sound)
}

/// Prints the ratio of stored bytes to file bytes.
#[allow(clippy::as_conversions, clippy::cast_precision_loss)] // Two digits after the point are shown.
fn print_ratio(image: &Image) -> Result<()> {
    let map = forerun_pictures::ImageMap::survey(image.reader(), &mut |_, _| {})?;
    let total = map.total();
    let ratio = 100.0 * total.stored as f64 / (total.size.max(1)) as f64;
    let mut out = Output::stdout()?;
    out.line(format!("Compression ratio: {ratio:.2}%"))?;
    out.finish()
}

/// Extracts the image. Returns whether it succeeded completely.
fn unpack(
    context: &Context,
    call: &FsckErofs,
    dest: &Path,
    prepared: PreparedImage,
) -> Result<bool> {
    let above = dest.parent().filter(|above| !above.as_os_str().is_empty());
    let made = above.map_or(Ok(()), |above| above.metadata().map(drop));
    let made = made.and_then(|()| OutputDir::make(dest));
    let place = match made {
        Ok(place) => place,
        Err(error) => {
            let (dest, why) = (dest.display(), reason(&error));
            complain(&format!(
                "<E> erofs: failed to create directory: {dest} ({why})"
            ));
            return Ok(failed());
        }
    };
    let is_root = rustix::process::geteuid().is_root();
    let xattrs = call.xattrs.unwrap_or(is_root);
    let options = ExtractOptions {
        force: call.overwrite,
        devices: true,
        special_bits: call.perms.unwrap_or(is_root),
        umask: !call.perms.unwrap_or(is_root),
        root_attributes: true,
        owners: if call.owner.unwrap_or(is_root) {
            Owners::Image
        } else {
            Owners::Caller
        },
        no_xattrs: !xattrs,
        privileged_xattrs: xattrs && is_root,
        is_new: place.is_new(),
        ..ExtractOptions::default()
    };
    interrupt::defer();
    let graceful = Graceful::new(Arc::clone(&options.stop));
    let sandbox = place.sandbox(prepared.sandbox());
    context.confine(&sandbox.keep(capabilities(&options)));
    let image = match context.open_prepared(prepared, None) {
        Ok(image) => image,
        Err(failure) => {
            place.take_back();
            return Err(failure);
        }
    };
    let progress = Progress::new(context, "extracting", 0);
    let report = extract(
        image.reader(),
        &Selection::default(),
        dest,
        &options,
        &progress,
    )?;
    drop((progress, graceful));
    for failure in report.failures {
        complain(&format!(
            "<E> erofs: {}",
            in_one_line(&Failure::from(failure))
        ));
    }
    let mut is_whole = report.missing == 0 && !report.stopped && !report.interrupted;
    for lost in report.shortfalls.iter().filter(|lost| lost.error.is_some()) {
        is_whole &= lost.loss != Loss::Device;
        let path = lost
            .examples
            .first()
            .map(|path| String::from_utf8_lossy(path));
        let why = lost.error.as_ref().map_or_else(String::new, reason);
        let (path, dest) = (path.unwrap_or_default(), dest.display());
        complain(&format!(
            "<W> erofs: not all of {dest}/{path} was set: {why}"
        ));
    }
    Ok(is_whole || failed())
}

/// Reports an incomplete extraction. Returns false.
fn failed() -> bool {
    complain("<E> erofs: Failed to extract filesystem");
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines() {
        let words = |line: &[&str]| line.iter().map(OsString::from).collect::<Vec<_>>();
        let call = parse(
            "x",
            &words(&["--extract=d", "--extract", "i", "--no-preserve-owner"]),
        );
        let expected = FsckErofs {
            image: "i".into(),
            whole: true,
            dest: Some("d".into()),
            owner: Some(false),
            ..FsckErofs::default()
        };
        assert_eq!(call, Ok(expected));
        for line in [
            &["--extract=/", "i"][..],
            &[],
            &["a", "b"],
            &["--offset=x", "i"],
            &["-q", "i"],
        ] {
            let refused = parse("x", &words(line));
            assert!(matches!(refused, Err(Refusal::Usage(_))), "{line:?}");
        }
    }
}
