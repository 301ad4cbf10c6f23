//! The command lines of programs that mount with libfuse: `-o` with words, and `-f`, `-d` and `-s`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// A use of a mount option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// Passed on to the mount, which knows it under the same name.
    Mount,
    /// Passed on; the value is a decimal number.
    Number,
    /// The time after which an idle mount ends.
    Idle,
    /// Stays in the foreground and logs.
    Debug,
    /// Accepted without effect.
    Nothing,
    /// For root: without root it is accepted without effect, as fusermount3 does it.
    Root,
}

/// The mount options. A name that ends with `=` takes a value.
const WORDS: &[(&str, Use)] = &[
    ("ro", Use::Mount),
    ("rw", Use::Mount),
    ("offset=", Use::Number),
    ("uid=", Use::Number),
    ("gid=", Use::Number),
    ("timeout=", Use::Idle),
    ("allow_other", Use::Mount),
    ("default_permissions", Use::Mount),
    ("auto_unmount", Use::Mount),
    ("fsname=", Use::Mount),
    ("subtype=", Use::Mount),
    ("suid", Use::Root),
    ("nosuid", Use::Mount),
    ("dev", Use::Root),
    ("nodev", Use::Mount),
    ("exec", Use::Mount),
    ("noexec", Use::Mount),
    ("debug", Use::Debug),
    // Nothing is written, and times of access are not kept.
    ("sync", Use::Nothing),
    ("async", Use::Nothing),
    ("dirsync", Use::Nothing),
    ("atime", Use::Nothing),
    ("noatime", Use::Nothing),
    ("diratime", Use::Nothing),
    ("nodiratime", Use::Nothing),
    ("relatime", Use::Nothing),
    // The number of threads and the size of requests are found without them.
    ("clone_fd", Use::Nothing),
    ("max_idle_threads=", Use::Nothing),
    ("max_threads=", Use::Nothing),
    ("max_read=", Use::Nothing),
    ("max_readahead=", Use::Nothing),
    ("async_read", Use::Nothing),
    ("sync_read", Use::Nothing),
    ("splice_read", Use::Nothing),
    ("splice_write", Use::Nothing),
    ("splice_move", Use::Nothing),
    ("no_splice_read", Use::Nothing),
    ("no_splice_write", Use::Nothing),
    ("no_splice_move", Use::Nothing),
    ("big_writes", Use::Nothing),
    // An image does not change, so the kernel keeps all it knows of it.
    ("kernel_cache", Use::Nothing),
    ("auto_cache", Use::Nothing),
    ("noauto_cache", Use::Nothing),
    ("attr_timeout=", Use::Nothing),
    ("entry_timeout=", Use::Nothing),
    ("negative_timeout=", Use::Nothing),
    ("ac_attr_timeout=", Use::Nothing),
    ("noforget", Use::Nothing),
    ("use_ino", Use::Nothing),
    ("readdir_ino", Use::Nothing),
    ("hard_remove", Use::Nothing),
    // Of libfuse 2: a mount hides what is below it in any case.
    ("nonempty", Use::Nothing),
    ("nofail", Use::Nothing),
    ("_netdev", Use::Nothing),
    ("user=", Use::Nothing),
];

/// A command line that can be followed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FuseCall {
    pub operands: Vec<OsString>,
    pub foreground: bool,
    pub debug: bool,
    /// The words for the mount, joined by commas.
    pub options: Vec<String>,
    pub idle: Option<Duration>,
}

/// The reason why a command line is not followed.
#[derive(Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It asks for the usage.
    Usage,
    /// The value of this word cannot be.
    Value(String),
    /// These options are not known.
    Unknown(String),
}

/// Parses the words after the program's name. `is_root`: the process has the rights of root.
pub fn parse(words: &[OsString], is_root: bool) -> Result<FuseCall, Refusal> {
    let mut call = FuseCall::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_bytes() {
            b"--" => call.operands.extend(words.by_ref().cloned()),
            b"-f" => call.foreground = true,
            b"-d" => call.debug = true,
            b"-s" => {}
            b"-V" | b"--version" => return Err(Refusal::Usage),
            [b'-', b'h', ..] | [b'-', b'-', b'h', ..] => return Err(Refusal::Usage),
            b"-o" => apply(&mut call, words.next().ok_or(Refusal::Usage)?, is_root)?,
            [b'-', b'o', list @ ..] => apply(&mut call, OsStr::from_bytes(list), is_root)?,
            [b'-', _, ..] => return Err(Refusal::Unknown(word.to_string_lossy().into())),
            _ => call.operands.push(word.clone()),
        }
    }
    Ok(call)
}

fn apply(call: &mut FuseCall, list: &OsStr, is_root: bool) -> Result<(), Refusal> {
    let list = list.to_string_lossy();
    let mut unknown = Vec::new();
    for word in split(&list).into_iter().filter(|word| !word.is_empty()) {
        if word.starts_with("x-") || word.starts_with("X-") {
            continue;
        }
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (format!("{name}="), Some(value)),
            None => (word.to_string(), None),
        };
        let known = WORDS.iter().find(|(known, _)| *known == name);
        match known.map(|(_, effect)| *effect) {
            None => unknown.push(word),
            Some(Use::Nothing) => {}
            Some(Use::Root) if !is_root => {}
            Some(Use::Mount | Use::Root) => call.options.push(word.to_string()),
            Some(Use::Debug) => call.debug = true,
            Some(effect @ (Use::Number | Use::Idle)) => {
                let number = value.and_then(number);
                let number = number.ok_or_else(|| Refusal::Value(word.to_string()))?;
                match effect {
                    Use::Idle => call.idle = (number > 0).then(|| Duration::from_secs(number)),
                    _ => call.options.push(word.to_string()),
                }
            }
        }
    }
    match unknown.as_slice() {
        [] => Ok(()),
        unknown => Err(Refusal::Unknown(format!("-o {}", unknown.join(",")))),
    }
}

fn number(text: &str) -> Option<u64> {
    let is_decimal = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_decimal)
}

/// Splits at commas that no backslash precedes; the backslashes stay.
fn split(list: &str) -> Vec<&str> {
    let mut escaped = false;
    let at_comma = |char: char| {
        let ends = char == ',' && !escaped;
        escaped = char == '\\' && !escaped;
        ends
    };
    list.split(at_comma).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(line: &[&str]) -> Result<FuseCall, Refusal> {
        let words: Vec<_> = line.iter().map(OsString::from).collect();
        parse(&words, false)
    }

    #[test]
    fn options_in_every_place_and_spelling() {
        let expected = FuseCall {
            operands: vec!["a".into(), "b".into()],
            foreground: true,
            debug: false,
            options: vec!["ro".into(), "fsname=x\\,y".into(), "uid=5".into()],
            idle: Some(Duration::from_secs(7)),
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
        let as_root = parse(&["-odev".into()], true).unwrap();
        assert_eq!(as_root.options, ["dev"]);
    }

    #[test]
    fn the_documentation_names_every_option() {
        let text = include_str!("../../../../docs/compat.md");
        let groups = text.replace("...", "");
        for (name, _) in WORDS {
            let is_splice = name.contains("splice");
            assert!(is_splice || groups.contains(name), "{name}");
        }
    }

    #[test]
    fn what_is_refused_is_named() {
        for (line, expected) in [
            (&["-h"][..], Refusal::Usage),
            (&["--help"], Refusal::Usage),
            (&["-V"], Refusal::Usage),
            (&["-o"], Refusal::Usage),
            (&["-ro"], Refusal::Unknown("-ro".into())),
            (&["--bogus"], Refusal::Unknown("--bogus".into())),
            (&["-o", "ro,a,b=1"], Refusal::Unknown("-o a,b=1".into())),
            (&["-o", "ro=1"], Refusal::Unknown("-o ro=1".into())),
            (&["-o", "offset=1M"], Refusal::Value("offset=1M".into())),
            (&["-o", "uid="], Refusal::Value("uid=".into())),
            (&["-o", "gid=-1"], Refusal::Value("gid=-1".into())),
        ] {
            assert_eq!(call(line).unwrap_err(), expected, "{line:?}");
        }
    }
}
