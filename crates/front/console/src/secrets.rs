//! Keeps passwords on the command line out of the command lines of background processes.
//!
//! Every user of the machine may read the arguments of every process (`/proc/PID/cmdline`), and a
//! process that serves a mount lives long. So when this program starts itself, an argument with a
//! password or a query is replaced by its redacted form, and the argument itself is passed through
//! a pipe. An environment variable gives the descriptor of the pipe. It also names the parent, so
//! that a stale variable is ignored.
//!
//! The arguments of the first process cannot be hidden; [`warn`] says so.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::Command;
use std::sync::OnceLock;

use forerun::unstable::remote::{has_password, without_secrets};
use rustix::io::{FdFlags, fcntl_setfd};

use crate::role;

/// The parent's process id and the descriptor of the pipe: `PID:NUMBER`.
const FROM: &str = "FORERUN_ARGUMENTS_FROM";
/// Bytes that a pipe holds without a reader.
const ROOM: usize = 60 << 10;

/// Arguments of this process, including the hidden ones.
static ARGUMENTS: OnceLock<Vec<OsString>> = OnceLock::new();

/// Returns the intended arguments of this process, without its role. The first call reads the pipe,
/// and must come before other threads start.
pub fn arguments() -> &'static [OsString] {
    ARGUMENTS.get_or_init(|| {
        let mut argv: Vec<_> = match role::of_this_process() {
            Some(this) => this.arguments.clone(),
            None => std::env::args_os().collect(),
        };
        for (index, word) in inherited() {
            if let Some(slot) = argv.get_mut(index) {
                *slot = word;
            }
        }
        argv
    })
}

/// Adds `argv`, the first arguments of this process or all of them, to `command`, which starts this
/// program again. The returned descriptor must live until the process was started.
///
/// Fails with [`io::ErrorKind::InvalidInput`] if the arguments exceed what a pipe holds.
pub fn pass_on(command: &mut Command, argv: &[OsString]) -> io::Result<Option<OwnedFd>> {
    let (shown, secret) = split(argv)?;
    command.args(shown).env_remove(FROM);
    if secret.is_empty() {
        return Ok(None);
    }
    let (reader, mut writer) = io::pipe()?;
    writer.write_all(&secret)?;
    drop(writer);
    let reader = OwnedFd::from(reader);
    // Every process that this one starts inherits it until the caller drops it.
    fcntl_setfd(&reader, FdFlags::empty())?;
    command.env(
        FROM,
        format!("{}:{}", std::process::id(), reader.as_raw_fd()),
    );
    Ok(Some(reader))
}

/// Returns the redacted arguments, without the program's name, and the hidden ones in the form for
/// the pipe.
fn split(argv: &[OsString]) -> io::Result<(Vec<OsString>, Vec<u8>)> {
    let (mut shown, mut secret) = (Vec::new(), Vec::new());
    for (index, word) in argv.iter().enumerate().skip(1) {
        let Some(hidden) = hidden(word) else {
            shown.push(word.clone());
            continue;
        };
        shown.push(hidden);
        secret.extend_from_slice(index.to_string().as_bytes());
        secret.push(0);
        secret.extend_from_slice(word.as_bytes());
        secret.push(0);
    }
    if secret.len() > ROOM {
        let text = "the addresses on the command line are too long to be passed on";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Ok((shown, secret))
}

/// Warns once for each password in the arguments of this process.
pub fn warn() {
    // Without a network, no argument contains a password.
    if !cfg!(feature = "network") || std::env::var_os(FROM).is_some() {
        return;
    }
    let words = arguments().iter().filter_map(|word| word.to_str());
    for word in words.filter(|word| has_password(word)) {
        let shown = without_secrets(word);
        let shown = crate::escape::printable(&shown);
        tracing::warn!(
            "every user of this machine can read the password in {shown} while the command runs; \
             ~/.netrc and --credentials-file keep it off the command line"
        );
    }
}

/// Returns an argument without its secret, or `None` for an argument that has none.
fn hidden(word: &OsStr) -> Option<OsString> {
    let text = word.to_string_lossy();
    let shown = without_secrets(&text);
    (shown != text).then(|| shown.into())
}

/// Reads the arguments that the parent has hidden, with their numbers.
fn inherited() -> Vec<(usize, OsString)> {
    let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().to_string());
    let from = std::env::var(FROM).ok();
    let from = from.as_deref().and_then(|from| from.split_once(':'));
    let number = match (from, parent) {
        (Some((pid, number)), Some(parent)) if pid == parent => number.parse().ok(),
        _ => None,
    };
    let Some(pipe) = number.and_then(forerun_sys::inherited::take) else {
        return Vec::new();
    };
    let mut bytes = Vec::new();
    // After an error an argument is missing, which the command line reports.
    let _read = File::from(pipe).read_to_end(&mut bytes);
    decoded(&bytes)
}

fn decoded(bytes: &[u8]) -> Vec<(usize, OsString)> {
    let mut fields = bytes.split(|byte| *byte == 0);
    let mut words = Vec::new();
    while let (Some(index), Some(word)) = (fields.next(), fields.next()) {
        let index = std::str::from_utf8(index).ok();
        if let Some(index) = index.and_then(|index| index.parse().ok()) {
            words.push((index, OsString::from_vec(word.to_vec())));
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_with_secrets_are_replaced_and_come_back() {
        for (word, shown) in [
            ("https://u:p@h/a", Some("https://h/a")),
            ("--mirror=https://h/a?sig=1", Some("--mirror=https://h/a")),
            ("https://h/a", None),
            ("oci://h/a@sha256:12", None),
            ("a?b", None),
        ] {
            let shown = shown.map(OsString::from);
            assert_eq!(hidden(OsStr::new(word)), shown);
        }
        let words = decoded(b"2\0https://u:p@h/a\x009\0x\0");
        assert_eq!(words, [(2, "https://u:p@h/a".into()), (9, "x".into())]);
        assert_eq!(decoded(b""), []);
    }
}
