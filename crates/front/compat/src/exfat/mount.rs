//! `mount.exfat` and `mount.exfat-fuse`: mounts of exFAT volumes, as mount(8) and scripts call them.

use std::ffi::OsString;

use super::{print, tell, usage};
use crate::error::Failure;
use crate::exit::Exit;
use crate::getopt::{OptNames, Takes, split};
use crate::{MountCall, Start, complain, mount};

const DONE: u8 = 0;
const FAILED: u8 = 1;

/// The version whose options these are.
const VERSION: &str = "1.3.0";

/// The options. mount(8) gives `-n`, `-v`, `-s` and `-t`, too.
const TABLE: &[OptNames] = &[
    ('d', "", Takes::Nothing),
    ('o', "", Takes::Value),
    ('V', "", Takes::Nothing),
    ('n', "", Takes::Nothing),
    ('v', "", Takes::Nothing),
    ('s', "", Takes::Nothing),
    ('t', "", Takes::Value),
];

/// Words of `-o` without effect; those that end with `=` take a value.
const WITHOUT_EFFECT: &[&str] = &[
    "blkdev",
    "nonempty",
    "big_writes",
    "blksize=",
    "max_read=",
    "atime",
    "noatime",
    "diratime",
    "nodiratime",
    "relatime",
    "norelatime",
    "strictatime",
    "lazytime",
    "user=",
    "uhelper=",
];

/// A command line that can be followed.
#[derive(Debug, Default, PartialEq, Eq)]
struct ExfatMount {
    device: OsString,
    dir: OsString,
    options: Vec<String>,
    debug: bool,
}

/// The reason why a command line is not followed.
#[derive(Debug, PartialEq, Eq)]
enum ExfatMountRefusal {
    Version,
    Usage(Option<String>),
}

fn parse(name: &str, words: &[OsString]) -> Result<ExfatMount, ExfatMountRefusal> {
    let split = split(words, TABLE)
        .map_err(|message| ExfatMountRefusal::Usage(Some(format!("{name}: {message}"))))?;
    let mut call = ExfatMount::default();
    for given in split.options {
        match TABLE.get(given.index).map(|(short, ..)| *short) {
            Some('d') => call.debug = true,
            Some('V') => return Err(ExfatMountRefusal::Version),
            Some('o') => {
                let list = given.value.unwrap_or_default();
                let list = list.to_string_lossy().into_owned();
                let words = list.split(',').filter(|word| has_effect(word));
                call.options.extend(words.map(str::to_string));
            }
            _ => {}
        }
    }
    match <[OsString; 2]>::try_from(split.operands) {
        Ok([device, dir]) => {
            (call.device, call.dir) = (device, dir);
            Ok(call)
        }
        Err(_) => Err(ExfatMountRefusal::Usage(None)),
    }
}

fn has_effect(word: &str) -> bool {
    let name = match word.split_once('=') {
        Some((name, _)) => format!("{name}="),
        None => word.to_string(),
    };
    let is_of_fstab = name.starts_with("x-") || name.starts_with("X-") || name.is_empty();
    !is_of_fstab && !WITHOUT_EFFECT.contains(&name.as_str())
}

/// Mounts. Returns the exit status.
pub fn run(start: &Start<'_>) -> u8 {
    let name = start.name.to_string_lossy();
    let parsed = parse(&name, start.words);
    if !(start.commands.is_in_background)() {
        let forerun = env!("CARGO_PKG_VERSION");
        print(&format!("FUSE exfat {VERSION} (forerun {forerun})\n"));
    }
    let call = match parsed {
        Ok(call) => call,
        Err(ExfatMountRefusal::Version) => return DONE,
        Err(ExfatMountRefusal::Usage(message)) => {
            if let Some(message) = message {
                complain(&message);
            }
            let text = format!("Usage: {name} [-d] [-o options] [-V] <device> <dir>\n");
            return usage(&text, FAILED);
        }
    };
    let mut options = vec!["subtype=exfat".to_string()];
    if rustix::process::geteuid().is_root() {
        // As the program does it: files belong to other users, too.
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
            "rw,uid=5,noatime,blkdev,x-gvfs,blksize=4096",
            "-texfat",
        ];
        let call = parse("x", &words(&line)).unwrap();
        assert_eq!(call.options, ["rw", "uid=5"]);
        for line in [&["d"][..], &["d", "m", "x"], &["-h"], &["d", "m", "-o"]] {
            assert!(parse("x", &words(line)).is_err(), "{line:?}");
        }
        crate::tests::documented("## mount.exfat", TABLE, true);
        let text = include_str!("../../../../../docs/compat.md");
        assert!(WITHOUT_EFFECT.iter().all(|word| text.contains(word)));
    }
}
