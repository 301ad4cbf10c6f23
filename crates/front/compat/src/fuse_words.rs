//! The command lines of programs that mount with libfuse: `-o` with a list, and `-f`, `-d` and
//! `-s`.

use std::ffi::OsString;
use std::time::Duration;

use crate::options::Effect::{Help, Nothing, Set, Value, Version, Word};
use crate::options::{Grammar, Opt, Options, Parsed, Refusal, apply_list, options};

const INVALID: &str = "fuse: invalid parameter in option `{}'";

pub const TABLE: &[Opt<FuseCall>] = options! {
    "-f" => Set(|call| call.foreground = true);
    "-d" => Set(|call| call.debug = true);
    "-s" => Nothing;
    "-V" | "--version" => Version;
    "-h*" | "--h*" => Help;
    "-o" | "-o*" => Value("", |call, value| call.apply(&value.text()));
};

pub const WORDS: &[Opt<FuseCall>] = options! {
    "ro" | "rw" | "allow_other" | "default_permissions" | "auto_unmount" | "fsname=" | "subtype="
        | "nosuid" | "nodev" | "exec" | "noexec" => Word(|call, word, _| call.pass_on(word));
    "offset=" | "uid=" | "gid=" => Value(INVALID, |call, value| {
        value.number::<u64>()?;
        call.pass_on(value.name)
    });
    "timeout=" => Value(INVALID, |call, value| {
        let seconds = value.number()?;
        call.idle = (seconds > 0).then(|| Duration::from_secs(seconds));
        Ok(())
    });
    // Without root, these are accepted without effect, like in fusermount3.
    "suid" | "dev" => Word(|call, word, _| if call.is_root { call.pass_on(word) } else { Ok(()) });
    "debug" => Set(|call| call.debug = true);
    // Mounts are read-only and keep no access times.
    "sync" | "async" | "dirsync" | "atime" | "noatime" | "diratime" | "nodiratime" | "relatime" => Nothing;
    // forerun chooses the number of threads and the size of requests itself.
    "clone_fd" | "max_idle_threads=" | "max_threads=" | "max_read=" | "max_readahead=" | "async_read" | "sync_read"
        | "splice_read" | "splice_write" | "splice_move" | "no_splice_read" | "no_splice_write" | "no_splice_move"
        | "big_writes" => Nothing;
    // An image does not change, so the kernel caches everything.
    "kernel_cache" | "auto_cache" | "noauto_cache" | "attr_timeout=" | "entry_timeout=" | "negative_timeout="
        | "ac_attr_timeout=" | "noforget" | "use_ino" | "readdir_ino" | "hard_remove" => Nothing;
    // From libfuse 2. A mount always hides the contents of its mountpoint.
    "nonempty" => Nothing;
    "nofail" | "_netdev" | "user=" => Nothing;
};

#[derive(Debug, Default, PartialEq, Eq)]
pub struct FuseCall {
    pub operands: Vec<OsString>,
    pub foreground: bool,
    pub debug: bool,
    pub options: Vec<String>,
    pub idle: Option<Duration>,
    /// The process runs as root.
    is_root: bool,
}

impl FuseCall {
    pub fn apply(&mut self, list: &str) -> Parsed {
        let mut unknown = Vec::new();
        apply_list(WORDS, list, self, |_, word| {
            unknown.push(word.to_string());
            Ok(())
        })?;
        if unknown.is_empty() {
            return Ok(());
        }
        let unknown = unknown.join(",");
        Err(Refusal::Told(format!(
            "fuse: unknown option(s): `-o {unknown}'"
        )))
    }

    /// Passes an option to the mount under the same name.
    pub fn pass_on(&mut self, word: &str) -> Parsed {
        self.options.push(word.to_string());
        Ok(())
    }
}

/// Parses the arguments after the program's name.
pub fn parse(
    tables: &[&'static [Opt<FuseCall>]],
    words: &[OsString],
    is_root: bool,
) -> Parsed<FuseCall> {
    let mut call = FuseCall {
        is_root,
        ..FuseCall::default()
    };
    let options = Options {
        program: "fuse",
        grammar: Grammar::Fuse,
        tables,
    };
    call.operands = options.parse(words, &mut call)?;
    Ok(call)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(line: &[&str]) -> Parsed<FuseCall> {
        let words: Vec<_> = line.iter().map(OsString::from).collect();
        parse(&[TABLE], &words, false)
    }

    #[test]
    fn options_in_every_place_and_spelling() {
        let expected = FuseCall {
            operands: vec!["a".into(), "b".into()],
            foreground: true,
            debug: false,
            options: vec!["ro".into(), "fsname=x\\,y".into(), "uid=5".into()],
            idle: Some(Duration::from_secs(7)),
            is_root: false,
        };
        for line in [
            &[
                "-f",
                "-o",
                "ro,fsname=x\\,y",
                "-o",
                "uid=5,timeout=7",
                "a",
                "b",
            ][..],
            &[
                "a",
                "-oro,fsname=x\\,y,,clone_fd,dev",
                "-s",
                "b",
                "-f",
                "-o",
                "uid=5,timeout=7",
            ],
            &[
                "-f",
                "-oro,fsname=x\\,y,uid=5,timeout=7,x-gvfs-hide",
                "--",
                "a",
                "b",
            ],
        ] {
            assert_eq!(call(line).unwrap(), expected, "{line:?}");
        }
        assert_eq!(call(&["-d", "-o", "timeout=0"]).unwrap().idle, None);
        let as_root = parse(&[TABLE], &["-odev".into()], true).unwrap();
        assert_eq!(as_root.options, ["dev"]);
    }

    #[test]
    fn what_is_refused_is_named() {
        let invalid = |word: &str| Refusal::Usage(INVALID.replace("{}", word));
        let unknown = |words: &str| Refusal::Told(format!("fuse: unknown option(s): `{words}'"));
        for (line, expected) in [
            (&["-h"][..], Refusal::Help),
            (&["--help"], Refusal::Help),
            (&["-V"], Refusal::Version),
            (&["-o"], Refusal::Usage(String::new())),
            (&["-ro"], unknown("-ro")),
            (&["--bogus"], unknown("--bogus")),
            (&["-o", "ro,a,b=1"], unknown("-o a,b=1")),
            (&["-o", "ro=1"], unknown("-o ro=1")),
            (&["-o", "offset=1M"], invalid("offset=1M")),
            (&["-o", "uid="], invalid("uid=")),
            (&["-o", "gid=-1"], invalid("gid=-1")),
        ] {
            assert_eq!(call(line).unwrap_err(), expected, "{line:?}");
        }
    }
}
