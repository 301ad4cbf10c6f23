//! `mount.exfat` and `mount.exfat-fuse`: mount exFAT volumes for mount(8) and scripts.

use std::ffi::OsString;

use super::{answer, tell};
use crate::error::Failure;
use crate::exit::Exit;
use crate::options::Effect::{Nothing, Set, Value, Version};
use crate::options::{Opt, Parsed, Refusal, apply_list, getopt, options, print};
use crate::{MountCall, Start, complain, mount};

const DONE: u8 = 0;
const FAILED: u8 = 1;

/// The version whose options are supported.
const VERSION: &str = "1.3.0";

/// The options. mount(8) also passes `-n`, `-v`, `-s` and `-t`.
pub const TABLE: &[Opt<ExfatMount>] = options! {
    "-d" => Set(|call| call.debug = true);
    "-o" => Value("", |call, value| {
        apply_list(WORDS, &value.text(), call, |call, word| {
            call.options.push(word.to_string());
            Ok(())
        })
    });
    "-V" => Version;
    "-n" | "-v" | "-s" => Nothing;
    "-t" => Value("", |_, _| Ok(()));
};

/// Mount options without effect.
pub const WORDS: &[Opt<ExfatMount>] = options! {
    "blkdev" | "nonempty" | "big_writes" | "blksize=" | "max_read=" | "atime" | "noatime" | "diratime" | "nodiratime"
        | "relatime" | "norelatime" | "strictatime" | "lazytime" | "user=" | "uhelper=" => Nothing;
    // Of old kernel drivers. Names keep their case, and are UTF-8.
    "namecase=" | "codepage=" | "debug" => Nothing;
    // Who may set times follows from the permissions.
    "allow_utime=" => Nothing;
    "errors=" => Value("", |call, value| {
        // This process can refuse further changes, but not stop the machine.
        call.options.push(match value.given.to_str() {
            Some("panic") => "errors=remount-ro".to_string(),
            _ => value.name.to_string(),
        });
        Ok(())
    });
};

/// A valid command line.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ExfatMount {
    device: OsString,
    dir: OsString,
    options: Vec<String>,
    debug: bool,
}

fn parse(name: &str, words: &[OsString]) -> Parsed<ExfatMount> {
    let mut call = ExfatMount::default();
    let operands = getopt(name, TABLE, words, &mut call)?;
    match <[OsString; 2]>::try_from(operands) {
        Ok([device, dir]) => {
            (call.device, call.dir) = (device, dir);
            Ok(call)
        }
        // There is no message except the usage.
        Err(_) => Err(Refusal::Help),
    }
}

pub fn usage(name: &str) -> String {
    format!("Usage: {name} [-d] [-o options] [-V] <device> <dir>\n")
}

pub fn run(start: &Start<'_>) -> u8 {
    let name = start.name.to_string_lossy();
    let parsed = parse(&name, start.words);
    if !(start.commands.is_in_background)() {
        let forerun = env!("CARGO_PKG_VERSION");
        print(&format!("FUSE exfat {VERSION} (forerun {forerun})\n"));
    }
    let call = match parsed {
        Ok(call) => call,
        Err(Refusal::Version) => return DONE,
        Err(refusal) => return answer(refusal, &usage(&name), FAILED),
    };
    let mut options = vec!["subtype=exfat".to_string()];
    if rustix::process::geteuid().is_root() {
        // Like the original: files may belong to other users.
        options.push("allow_other".to_string());
    }
    options.extend(call.options);
    let args = MountCall {
        image: (&call.device).into(),
        dir: call.dir.into(),
        format: "exfat",
        options,
        foreground: call.debug,
        ..MountCall::default()
    };
    let tell = |failure: &Failure| match failure.exit {
        Exit::Format => complain("ERROR: exFAT file system is not found."),
        Exit::Source => {
            let (device, why) = (call.device.to_string_lossy(), &failure.message);
            complain(&format!("ERROR: failed to open '{device}': {why}."));
        }
        _ => tell(failure),
    };
    mount(start.commands, &args, call.debug, tell, |exit| match exit {
        Exit::Ok => DONE,
        _ => FAILED,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_a_mount() {
        let words = |line: &[&str]| line.iter().map(OsString::from).collect::<Vec<_>>();
        let line = [
            "d",
            "m",
            "-n",
            "-o",
            "rw,uid=5,noatime,blkdev,x-gvfs,blksize=4096,namecase=0,codepage=437,allow_utime=0,debug,errors=panic",
            "-texfat",
        ];
        let call = parse("x", &words(&line)).unwrap();
        assert_eq!(call.options, ["rw", "uid=5", "errors=remount-ro"]);
        for line in [&["d"][..], &["d", "m", "x"], &["-h"], &["d", "m", "-o"]] {
            assert!(parse("x", &words(line)).is_err(), "{line:?}");
        }
    }
}
