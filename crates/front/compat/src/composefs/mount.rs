//! `mount.composefs`: mounts of composefs images, as mount(8) and scripts call it.

use std::ffi::OsString;

use super::{DONE, FAILED, not_followed, tell};
use crate::exit::Exit;
use crate::getopt::{NotFollowed, OptNames, Takes, split};
use crate::{MountCall, Start, mount};

const PROGRAM: &str = "mount.composefs";

const USAGE: &str = "\
Usage: mount.composefs [-o OPTIONS] IMAGE MOUNTPOINT

Mounts the composefs image IMAGE.
  -o basedir=DIR       the object store
  -o digest=DIGEST     the image must have this digest
  -o verity            objects must have the digests that the image names
  -o noverity, ro, noexec, nodev, nosuid, ...   as for forerun mount
  -t TYPE, -n, -v, -s  accepted without effect
  -h, --help, --version
";

/// The options.
const TABLE: &[OptNames] = &[
    ('h', "help", Takes::Nothing),
    ('\0', "version", Takes::Nothing),
    ('o', "", Takes::Value),
    ('t', "", Takes::Value),
    ('f', "", Takes::Nothing),
    ('n', "", Takes::Nothing),
    ('v', "", Takes::Nothing),
    ('s', "", Takes::Nothing),
];

/// A command line that can be followed.
#[derive(Debug, Default, PartialEq, Eq)]
struct ComposefsMount {
    image: OsString,
    dir: OsString,
    options: Vec<String>,
    /// Checks the command line, and mounts nothing.
    fake: bool,
}

fn parse(words: &[OsString]) -> Result<ComposefsMount, NotFollowed> {
    let mistake = NotFollowed::Mistake;
    let split = split(words, TABLE).map_err(mistake)?;
    let mut call = ComposefsMount::default();
    for given in split.options {
        match TABLE.get(given.index).copied().unwrap_or(TABLE[0]) {
            ('h', ..) => return Err(NotFollowed::Help),
            (_, "version", _) => return Err(NotFollowed::Version),
            ('f', ..) => call.fake = true,
            ('o', ..) => {
                let value = given.value.unwrap_or_default();
                for word in value.to_string_lossy().split(',') {
                    call.options.extend(translated(word).map_err(mistake)?);
                }
            }
            _ => {}
        }
    }
    match <[OsString; 2]>::try_from(split.operands) {
        Ok([image, dir]) => {
            (call.image, call.dir) = (image, dir);
            Ok(call)
        }
        Err(operands) => Err(mistake(
            match operands.len() {
                0 => "No source path specified",
                1 => "No target path specified",
                _ => "too many arguments",
            }
            .to_string(),
        )),
    }
}

/// Returns the word of `forerun mount` for one of the program; nothing where it has no effect.
fn translated(word: &str) -> Result<Option<String>, String> {
    let (name, value) = word.split_once('=').unwrap_or((word, ""));
    Ok(Some(match name {
        "" | "noverity" | "tryverity" | "rw" if value.is_empty() => return Ok(None),
        "basedir" if value.contains(':') => {
            return Err("basedir= with several directories is not supported".to_string());
        }
        "basedir" => format!("objects={value}"),
        "verity" if value.is_empty() => "verity=require".to_string(),
        "digest" => word.to_string(),
        "upperdir" | "workdir" | "idmap" | "objects" => {
            return Err(format!("unsupported option {word}"));
        }
        _ => word.to_string(),
    }))
}

/// Mounts. Returns the exit status.
pub fn run(start: &Start<'_>) -> u8 {
    let call = match parse(start.words) {
        Ok(call) => call,
        Err(reason) => return not_followed(reason, PROGRAM, USAGE),
    };
    if call.fake {
        return DONE;
    }
    let args = MountCall {
        image: call.image.into(),
        dir: call.dir.into(),
        format: "composefs",
        options: [vec!["subtype=composefs".to_string()], call.options].concat(),
        ..MountCall::default()
    };
    mount(
        start.commands,
        &args,
        false,
        |failure| tell(PROGRAM, failure),
        |exit| match exit {
            Exit::Ok => DONE,
            _ => FAILED,
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_a_mount() {
        let words = |line: &[&str]| line.iter().map(OsString::from).collect::<Vec<_>>();
        let line = [
            "i",
            "d",
            "-n",
            "-o",
            "basedir=/s,verity,digest=ab,ro,noverity",
            "-t",
            "composefs",
        ];
        let call = parse(&words(&line)).unwrap();
        assert_eq!(
            call.options,
            ["objects=/s", "verity=require", "digest=ab", "ro"]
        );
        for line in [
            &["i"][..],
            &["i", "d", "x"],
            &["-o", "upperdir=/u", "i", "d"],
            &["-o", "basedir=/a:/b", "i", "d"],
            &["-q", "i", "d"],
        ] {
            assert!(parse(&words(line)).is_err(), "{line:?}");
        }
        let text = include_str!("../../../../../docs/compat.md");
        let (_, text) = text.split_once("## mount.composefs").unwrap();
        for word in [
            "basedir", "digest", "verity", "noverity", "upperdir", "workdir", "idmap",
        ] {
            assert!(text.contains(word), "{word}");
        }
    }
}
