//! Descriptors that the caller left open.
//!
//! If a background process keeps them, it holds up other programs: the reader of a pipe, the next
//! owner of a lock, an unmount. Programs that this process starts would hold them as well. So all
//! of them are closed at the next execve(2), including the one that makes the background process.
//! Exceptions are descriptors that the command line names, such as `/dev/fd/7`: the background
//! process opens these names, and then closes the descriptors. The command of `mount IMAGE DIR --
//! CMD` gets all of them.

use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

use forerun_sys::inherited;

/// Descriptors that the command line names.
static NAMED: OnceLock<Vec<RawFd>> = OnceLock::new();
static MARKED: OnceLock<Vec<RawFd>> = OnceLock::new();

/// Marks all inherited descriptors except the standard ones to be closed at an execve(2). Must be
/// called before this process opens anything. In the background process (`is_last`), named
/// descriptors are marked too.
pub fn close_on_exec(is_last: bool) {
    let (mut named, mut marked) = (Vec::new(), Vec::new());
    for number in inherited::numbers() {
        let is_named = is_named(number);
        if is_named {
            named.push(number);
        }
        if !is_named || is_last {
            marked.push(number);
        }
    }
    inherited::set_close_on_exec(&marked, true);
    let _set_once = (NAMED.set(named), MARKED.set(marked));
}

/// Runs `start`, which starts a program for the user. That program gets all inherited descriptors.
pub fn pass_on<T>(start: impl FnOnce() -> T) -> T {
    let marked = MARKED.get().map(Vec::as_slice).unwrap_or_default();
    inherited::set_close_on_exec(marked, false);
    let started = start();
    inherited::set_close_on_exec(marked, true);
    started
}

pub fn close_named() {
    for &number in NAMED.get().into_iter().flatten() {
        drop(inherited::take(number));
    }
}

fn is_named(number: RawFd) -> bool {
    std::env::args_os().any(|word| names(word.as_bytes(), number))
}

/// Returns whether `word` contains the path `/fd/N` of the descriptor.
fn names(word: &[u8], number: RawFd) -> bool {
    let name = format!("/fd/{number}");
    let mut ends = word
        .windows(name.len())
        .enumerate()
        .filter(|(_, window)| *window == name.as_bytes())
        .map(|(at, _)| at + name.len());
    ends.any(|end| !word.get(end).is_some_and(u8::is_ascii_digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_descriptors() {
        for (word, expected) in [
            ("/dev/fd/7", true),
            ("--log=/proc/self/fd/7", true),
            ("device=/dev/fd/70,device=/dev/fd/7,ro", true),
            ("/dev/fd/70", false),
            ("/dev/fd/", false),
            ("7", false),
        ] {
            assert_eq!(names(word.as_bytes(), 7), expected, "{word}");
        }
    }
}
