//! The ways in which mount(8) and umount(8) call their helpers.
//!
//! `mount -t fuse.forerun IMAGE DIR` and fstab lines run `/sbin/mount.fuse.forerun` if it exists: a
//! link to this program, recognised by its name. Otherwise `mount.fuse3` runs `forerun IMAGE DIR -o
//! OPTIONS` through a shell. The first form is better: the second adds `suid,dev` to the options
//! unless told otherwise, so these two words are ignored there.
//!
//! umount(8) runs `/sbin/umount.fuse.forerun` for a mount of the type, because umount(2) alone
//! cannot report that the last changes of a volume could not be written.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::{HelperCall, MountArgs};
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::umount::UmountArgs;

const NAMES: &[&str] = &["mount.fuse.forerun", "mount.fuse3.forerun", "mount.forerun"];
const UMOUNT_NAME: &str = "umount.fuse.forerun";
const UMOUNT_USAGE: &str = "umount.fuse.forerun DIR [-flnrv] [-t TYPE]";
const USAGE: &str = "mount.fuse.forerun IMAGE DIR [-sfnv] [-o OPTIONS] [-t TYPE]";

/// Returns the arguments of a call by mount(8), and whether it asked for verbosity. Returns `None`
/// for other calls. `is_command` recognises names of forerun's commands, which are not images.
pub fn as_mount_helper(
    argv: &[OsString],
    is_command: &dyn Fn(&OsStr) -> bool,
) -> Option<Result<(MountArgs, bool)>> {
    let (name, rest) = argv.split_first()?;
    let name = Path::new(name).file_name()?;
    if NAMES.iter().any(|known| name == *known) {
        return Some(parse(rest));
    }
    match rest {
        [image, dir, flag, options]
            if flag == "-o" && !is_command(image) && !is_flag(image) && !is_flag(dir) =>
        {
            let words = options.to_string_lossy();
            let believed: Vec<_> = words
                .split(',')
                .filter(|word| !matches!(*word, "suid" | "dev"))
                .collect();
            let args = arguments(image, dir, vec![believed.join(",")], HelperCall::default());
            Some(Ok((args, false)))
        }
        _ => None,
    }
}

/// Returns the arguments of a call by umount(8), or `None` for other calls.
pub fn as_umount_helper(argv: &[OsString]) -> Option<Result<UmountArgs>> {
    let (name, rest) = argv.split_first()?;
    (Path::new(name).file_name()? == UMOUNT_NAME).then(|| parse_umount(rest))
}

fn parse_umount(argv: &[OsString]) -> Result<UmountArgs> {
    let usage = || Failure::usage(format!("usage: {UMOUNT_USAGE}"));
    let mut args = UmountArgs {
        lazy: false,
        force: false,
        dead: false,
        dirs: Vec::new(),
    };
    let mut words = argv.iter();
    while let Some(word) = words.next() {
        if !is_flag(word) {
            args.dirs.push(word.into());
            continue;
        }
        let mut letters = word.as_bytes().get(1..).unwrap_or_default().iter();
        while let Some(letter) = letters.next() {
            match letter {
                b'f' => args.force = true,
                b'l' => args.lazy = true,
                b'n' | b'r' | b'v' => {}
                // The type, and a namespace that umount(8) itself has entered.
                b't' | b'N' => {
                    if letters.as_slice().is_empty() {
                        words.next().ok_or_else(usage)?;
                    }
                    break;
                }
                _ => return Err(usage()),
            }
        }
    }
    if args.dirs.len() == 1 {
        Ok(args)
    } else {
        Err(usage())
    }
}

/// Returns the exit status in mount(8)'s own numbers, which differ from those of other commands.
pub const fn helper_status(exit: Exit) -> u8 {
    match exit {
        Exit::Ok => 0,
        Exit::Usage => 1,
        _ => 32,
    }
}

fn is_flag(word: &OsStr) -> bool {
    word.as_bytes().starts_with(b"-")
}

fn parse(argv: &[OsString]) -> Result<(MountArgs, bool)> {
    let mut operands = Vec::new();
    let mut options = Vec::new();
    let mut call = HelperCall::default();
    let mut verbose = false;
    let mut words = argv.iter();
    while let Some(word) = words.next() {
        if !is_flag(word) || word == "-" {
            operands.push(word);
            continue;
        }
        let mut letters = word.as_bytes().get(1..).unwrap_or_default().iter();
        while let Some(letter) = letters.next() {
            match letter {
                b's' => call.sloppy = true,
                b'f' => call.fake = true,
                b'v' => verbose = true,
                b'n' => {}
                // The type, and a namespace that mount(8) itself has entered, are ignored.
                b'o' | b't' | b'N' => {
                    let attached = letters.as_slice();
                    let value = match attached {
                        [] => words.next().map(OsString::as_os_str),
                        attached => Some(OsStr::from_bytes(attached)),
                    };
                    let value = value.ok_or_else(usage)?;
                    if *letter == b'o' {
                        options.push(value.to_string_lossy().into_owned());
                    }
                    break;
                }
                _ => return Err(usage()),
            }
        }
    }
    match operands.as_slice() {
        [image, dir] => Ok((arguments(image, dir, options, call), verbose)),
        _ => Err(usage()),
    }
}

fn usage() -> Failure {
    Failure::usage(format!("usage: {USAGE}"))
}

fn arguments(image: &OsStr, dir: &OsStr, options: Vec<String>, call: HelperCall) -> MountArgs {
    MountArgs {
        options,
        helper: Some(call),
        ..MountArgs::new(image, dir)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(words: &[&str]) -> Option<Result<(MountArgs, bool)>> {
        let argv: Vec<_> = words.iter().map(OsString::from).collect();
        as_mount_helper(&argv, &|name| name == "ls" || name == "mount")
    }

    #[test]
    fn by_name() {
        let words = [
            "/sbin/mount.fuse.forerun",
            "/a.img",
            "/mnt",
            "-sv",
            "-o",
            "rw,nofail",
        ];
        let (args, verbose) = call(&words).unwrap().unwrap();
        assert_eq!(
            (args.image.as_path(), args.dir.as_path()),
            (Path::new("/a.img"), Path::new("/mnt"))
        );
        assert_eq!(args.options, ["rw,nofail"]);
        let expected = HelperCall {
            fake: false,
            sloppy: true,
        };
        assert!(verbose && args.helper == Some(expected));
    }

    #[test]
    fn umount_8_is_understood() {
        let call = |words: &[&str]| {
            let argv: Vec<_> = words.iter().map(OsString::from).collect();
            as_umount_helper(&argv).map(|args| args.map(|args| (args.lazy, args.force)).ok())
        };
        for (words, expected) in [
            (
                &["/sbin/umount.fuse.forerun", "/m"][..],
                Some(Some((false, false))),
            ),
            (
                &["umount.fuse.forerun", "/m", "-lv"],
                Some(Some((true, false))),
            ),
            (
                &["umount.fuse.forerun", "-f", "-t", "fuse.forerun", "/m"],
                Some(Some((false, true))),
            ),
            (
                &["umount.fuse.forerun", "-Nx", "/m"],
                Some(Some((false, false))),
            ),
            (&["umount.fuse.forerun"], Some(None)),
            (&["umount.fuse.forerun", "/m", "-t"], Some(None)),
            (&["umount.fuse.forerun", "/m", "-x"], Some(None)),
            (&["umount.fuse.forerun", "/m", "/n"], Some(None)),
            (&["forerun", "umount", "/m"], None),
        ] {
            assert_eq!(call(words), expected, "{words:?}");
        }
    }

    #[test]
    fn every_order_and_spelling() {
        for words in [
            &[
                "mount.forerun",
                "-o",
                "ro",
                "/a",
                "/b",
                "-n",
                "-t",
                "fuse.forerun",
            ][..],
            &["mount.forerun", "/a", "-oro", "/b", "-f"],
        ] {
            let (args, _) = call(words).unwrap().unwrap();
            assert_eq!(args.options, ["ro"], "{words:?}");
        }
        for words in [
            &["mount.forerun", "/a"][..],
            &["mount.forerun", "/a", "/b", "/c"],
            &["mount.forerun", "/a", "/b", "-o"],
            &["mount.forerun", "/a", "/b", "-x"],
        ] {
            assert!(call(words).unwrap().is_err(), "{words:?}");
        }
    }

    #[test]
    fn the_status_is_mount_s() {
        assert_eq!(
            [Exit::Ok, Exit::Usage, Exit::Mount].map(helper_status),
            [0, 1, 32]
        );
    }

    #[test]
    fn through_mount_fuse3() {
        let (args, _) = call(&["forerun", "/a", "/b", "-o", "rw,dev,suid,uid=5"])
            .unwrap()
            .unwrap();
        assert_eq!(args.options, ["rw,uid=5"]);
        for words in [
            &["forerun", "ls", "/b", "-o", "x"][..],
            &["forerun", "mount", "/a", "-o", "x"],
            &["forerun", "mount", "-o", "ro", "/a", "/b"],
            &["forerun", "-q", "/b", "-o", "x"],
            &["forerun"],
            &[],
        ] {
            assert!(call(words).is_none(), "{words:?}");
        }
    }
}
