//! `squashfuse` and `squashfuse_ll`: mount SquashFS images.
//!
//! The two accept the same options. They differ in exit codes, and for a bad mountpoint
//! `squashfuse_ll` prints its usage.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::Path;

use crate::error::{Failure, reason};
use crate::exit::Exit;
use crate::fuse_words::{FuseCall, TABLE, parse};
use crate::options::Refusal;
use crate::{MountCall, Start, complain};

/// The version whose options are supported.
const VERSION: &str = "0.5.2";

/// The libfuse interface of the program, which decides its exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    High,
    Low,
}

impl Level {
    const fn unknown_option(self) -> u8 {
        match self {
            Self::High => 3,
            Self::Low => 1,
        }
    }

    const fn mount_failed(self) -> u8 {
        match self {
            Self::High => 4,
            Self::Low => 1,
        }
    }
}

const USAGE: u8 = 254;
const NO_IMAGE: u8 = 255;

/// Mounts the image. Returns the exit status.
pub fn run(start: &Start<'_>, level: Level) -> u8 {
    let name = start.name;
    let call = match parse(&[TABLE], start.words, rustix::process::geteuid().is_root()) {
        Ok(call) => call,
        Err(Refusal::Told(message)) => {
            complain(&message);
            return level.unknown_option();
        }
        Err(Refusal::Usage(message)) if !message.is_empty() => {
            complain(&message);
            return usage(name);
        }
        Err(_) => return usage(name),
    };
    let (image, dir) = match call.operands.as_slice() {
        [image, dir] => (image, dir),
        [_] if level == Level::High => {
            complain("error: no mountpoint specified");
            return 2;
        }
        _ => return usage(name),
    };
    let is_first = !(start.commands.is_in_background)();
    if is_first && let Err(code) = check_place(name, Path::new(dir), call.idle.is_some(), level) {
        return code;
    }
    let args = mount_call(name, "squashfs", &call, (image, dir));
    let status = |exit| status(exit, level);
    crate::mount(
        start.commands,
        &args,
        call.debug,
        |failure| tell(failure, &args),
        status,
    )
}

/// Checks the mountpoint like libfuse does. Returns the exit status if it is unusable.
fn check_place(name: &OsStr, dir: &Path, is_timed: bool, level: Level) -> Result<(), u8> {
    if forerun_fuse::is_descriptor(dir) {
        if is_timed {
            complain("timeout= needs a mountpoint: a descriptor cannot be unmounted");
            return Err(level.unknown_option());
        }
        return Ok(());
    }
    let Err(error) = dir.metadata() else {
        return Ok(());
    };
    let (shown, why) = (dir.display(), reason(&error));
    complain(&format!("fuse: bad mount point `{shown}': {why}"));
    Err(match level {
        Level::High => 1,
        Level::Low => usage(name),
    })
}

/// Returns the mount of an image with the given format.
pub fn mount_call(
    name: &OsStr,
    format: &'static str,
    call: &FuseCall,
    (image, dir): (&OsString, &OsString),
) -> MountCall {
    let name = Path::new(name)
        .file_name()
        .unwrap_or(name)
        .to_string_lossy();
    let mut options = vec![format!("subtype={name},fsname={name}")];
    options.extend(call.options.iter().cloned());
    MountCall {
        image: image.into(),
        dir: dir.into(),
        format,
        options,
        foreground: call.foreground || call.debug,
        permissive: true,
        idle: call.idle,
    }
}

fn tell(failure: &Failure, args: &MountCall) {
    match failure.exit {
        Exit::Source if args.image.is_dir() => {
            complain("This doesn't look like a squashfs image.");
        }
        Exit::Source => complain(&format!("Can't open squashfs image: {}", failure.message)),
        Exit::Format => complain("This doesn't look like a squashfs image."),
        Exit::Image => {
            complain("Something went wrong trying to read the squashfs image.");
            complain(&format!("{}: {}", args.image.display(), failure.message));
        }
        _ => complain(&format!("fuse: {}", failure.message)),
    }
}

const fn status(exit: Exit, level: Level) -> u8 {
    match exit {
        Exit::Ok => 0,
        Exit::Source | Exit::Format | Exit::Image => NO_IMAGE,
        Exit::Usage => level.unknown_option(),
        _ => level.mount_failed(),
    }
}

const GENERAL: &str = "\
FUSE options:
    -h   --help            print this text
    -V   --version         print this text
    -d   -o debug          stay in the foreground, and log
    -f                     stay in the foreground
    -s                     accepted without effect
    -o opt,...             mount options, such as ro, allow_other or nosuid
";

pub fn usage_text(name: &str) -> String {
    format!("{}{GENERAL}", own_usage(name))
}

fn own_usage(name: &str) -> String {
    format!(
        "\
Usage: {name} [options] ARCHIVE MOUNTPOINT

{name} options:
    -o offset=N            offset of ARCHIVE in the file, in bytes
    -o timeout=N           unmount after N seconds without use
    -o uid=N               show user N as the owner of all files
    -o gid=N               show group N as the group of all files
"
    )
}

fn usage(name: &OsStr) -> u8 {
    let forerun = env!("CARGO_PKG_VERSION");
    let own = own_usage(&name.to_string_lossy());
    let text = format!("squashfuse {VERSION} (forerun {forerun})\n\n{own}");
    // Without standard output or standard error, nothing can be printed.
    let _ = io::stderr().write_all(text.as_bytes());
    let _ = io::stdout().write_all(GENERAL.as_bytes());
    USAGE
}
