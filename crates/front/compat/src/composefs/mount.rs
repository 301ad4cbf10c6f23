//! `mount.composefs`: mounts composefs images for mount(8) and scripts.

use std::ffi::OsString;

use super::{DONE, FAILED, tell};
use crate::exit::Exit;
use crate::options::Effect::{Help, Nothing, Set, Value, Version, Word};
use crate::options::{Manual, Opt, Parsed, Refusal, apply_list, getopt, options};
use crate::{MountCall, Start, mount};

const PROGRAM: &str = "mount.composefs";

pub const USAGE: &str = "\
Usage: mount.composefs [-o OPTIONS] IMAGE MOUNTPOINT

Mounts the composefs image IMAGE.
  -o basedir=DIR[:DIR] object stores, or other directories with the files
  -o upperdir=DIR,workdir=DIR
                       writable layer; the kernel mounts all then
  -o digest=DIGEST     required digest of the image; implies verity
  -o verity            check objects against their digests in the image
  -o noverity, ro, noexec, nodev, nosuid, ...   as for forerun mount
  -t TYPE, -n, -v, -s  accepted without effect
  -h, --help, --version
";

const MANUAL: Manual<'_> = Manual {
    version: "mount.composefs 1.0.8",
    usage: USAGE,
    mistake: FAILED,
};

pub const TABLE: &[Opt<ComposefsMount>] = options! {
    "-h" | "--help" => Help;
    "--version" => Version;
    "-o" => Value("", |call, value| {
        apply_list(WORDS, &value.text(), call, |call, word| {
            call.options.push(word.to_string());
            Ok(())
        })
    });
    "-f" => Set(|call| call.fake = true);
    "-t" => Value("", |_, _| Ok(()));
    "-n" | "-v" | "-s" => Nothing;
};

/// Mount options that `forerun mount` lacks, or has under another name.
pub const WORDS: &[Opt<ComposefsMount>] = options! {
    "noverity" | "tryverity" | "rw" => Nothing;
    "verity" => Set(|call| call.options.push("verity=require".to_string()));
    // An image with a known digest proves its objects.
    "digest=" => Value("", |call, value| {
        call.options.push(format!("digest={}", value.text()));
        call.options.push("verity=require".to_string());
        Ok(())
    });
    "basedir=" => Value("", |call, value| {
        for dir in value.text().split(':') {
            if dir.is_empty() {
                return mistake("Value for basedir option has incorrect format");
            }
            call.options.push(format!("basedir={dir}"));
        }
        Ok(())
    });
    "upperdir=" | "workdir=" => Word(|call, word, _| {
        call.is_writable = true;
        call.options.push(word.to_string());
        Ok(())
    });
    "idmap=" | "objects=" => Word(|_, word, _| mistake(&format!("unsupported option {word}")));
};

/// A valid command line.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ComposefsMount {
    image: OsString,
    dir: OsString,
    options: Vec<String>,
    /// A writable layer was named.
    is_writable: bool,
    /// Checks the command line, and mounts nothing.
    fake: bool,
}

fn mistake<T>(message: &str) -> Parsed<T> {
    Err(Refusal::Usage(format!("{PROGRAM}: {message}")))
}

fn parse(words: &[OsString]) -> Parsed<ComposefsMount> {
    let mut call = ComposefsMount::default();
    let operands = getopt(PROGRAM, TABLE, words, &mut call)?;
    match <[OsString; 2]>::try_from(operands) {
        Ok([image, dir]) => {
            if !call.options.iter().any(|word| word.starts_with("basedir=")) {
                return mistake("No object dirs specified");
            }
            (call.image, call.dir) = (image, dir);
            Ok(call)
        }
        Err(operands) => mistake(match operands.len() {
            0 => "No source path specified",
            1 => "No target path specified",
            _ => "too many arguments",
        }),
    }
}

/// Mounts the image. Returns the exit status.
pub fn run(start: &Start<'_>) -> u8 {
    let call = match parse(start.words) {
        Ok(call) => call,
        Err(refusal) => return MANUAL.answer(refusal),
    };
    if call.fake {
        return DONE;
    }
    // Only the kernel can write to a layer.
    let server = if call.is_writable {
        "via=kernel"
    } else {
        "subtype=composefs"
    };
    let args = MountCall {
        image: call.image.into(),
        dir: call.dir.into(),
        format: "composefs",
        options: [vec![server.to_string()], call.options].concat(),
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
            "basedir=/s\\,t:/u,verity,digest=ab,ro,noverity",
            "-t",
            "composefs",
        ];
        let call = parse(&words(&line)).unwrap();
        assert_eq!(
            call.options,
            [
                "basedir=/s\\,t",
                "basedir=/u",
                "verity=require",
                "digest=ab",
                "verity=require",
                "ro"
            ]
        );
        for line in [
            &["i"][..],
            &["i", "d", "x"],
            &["i", "d"],
            &["-o", "upperdir=/u,workdir=/w", "i", "d"],
            &["-o", "basedir=/a::/b", "i", "d"],
            &["-q", "i", "d"],
        ] {
            assert!(parse(&words(line)).is_err(), "{line:?}");
        }
    }
}
