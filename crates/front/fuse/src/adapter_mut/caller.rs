//! Determines the system call that a thread is executing.
//!
//! A FUSE request does not say which system call caused it. `/proc/TID/syscall` does, but only to a
//! server that may trace the thread: as root, or as the same user unless `kernel.yama.ptrace_scope`
//! forbids it.

use std::fs;
use std::io;
use std::thread::sleep;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// rename(2), renameat(2) or renameat2(2).
    Rename,
    /// stat(2) and similar, by a path.
    Stat,
    /// A call that looks a name up and does not use it further if it is there: access(2), mkdir(2), or
    /// open(2) with `O_EXCL`.
    Passing,
    Other,
    /// The server is not permitted to know.
    Unknown,
}

/// Numbers of the rename system calls, of the architecture and of its 32-bit programs. None of
/// these numbers is another call that looks up names.
#[cfg(target_arch = "x86_64")]
const RENAMES: &[i64] = &[82, 264, 316, 38, 302, 353];
#[cfg(target_arch = "aarch64")]
const RENAMES: &[i64] = &[38, 276, 329, 382];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const RENAMES: &[i64] = &[];

/// Numbers of the system calls that read attributes, and the argument that has their flags, if they
/// have any.
#[cfg(target_arch = "x86_64")]
const STATS: &[(i64, Option<usize>)] = &[(4, None), (6, None), (262, Some(3)), (332, Some(2))];
#[cfg(target_arch = "aarch64")]
const STATS: &[(i64, Option<usize>)] = &[(79, Some(3)), (291, Some(2))];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const STATS: &[(i64, Option<usize>)] = &[];

/// Numbers of access(2), mkdir(2), mknod(2), symlink(2), link(2) and their variants.
#[cfg(target_arch = "x86_64")]
const PASSING: &[i64] = &[21, 83, 86, 88, 133, 258, 259, 265, 266, 269, 439];
#[cfg(target_arch = "aarch64")]
const PASSING: &[i64] = &[33, 34, 36, 37, 48, 439];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const PASSING: &[i64] = &[];

/// Numbers of the system calls that open, and the argument that has their flags.
#[cfg(target_arch = "x86_64")]
const OPENS: &[(i64, usize)] = &[(2, 1), (257, 2)];
#[cfg(target_arch = "aarch64")]
const OPENS: &[(i64, usize)] = &[(56, 2)];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const OPENS: &[(i64, usize)] = &[];

/// `AT_EMPTY_PATH`: the call is about a descriptor.
const AT_EMPTY_PATH: u64 = 0x1000;
/// `O_CREAT` and `O_EXCL`.
const CREATES_ONLY: u64 = 0o300;

/// How often, and with which pauses, the server checks a thread that does not wait for its answer
/// yet.
const LOOKS: u32 = 50;
const PAUSE: Duration = Duration::from_micros(100);

pub fn read(thread: u32) -> io::Result<String> {
    fs::read_to_string(format!("/proc/{thread}/syscall"))
}

impl Call {
    /// Returns the call that a thread executes while it waits for an answer. `look` returns the
    /// contents of `/proc/TID/syscall`.
    pub fn of(look: impl Fn() -> io::Result<String>) -> Self {
        if RENAMES.is_empty() {
            return Self::Unknown;
        }
        for _ in 0..LOOKS {
            match look() {
                Ok(text) if text.starts_with("running") => sleep(PAUSE),
                Ok(text) => return Self::parse(&text),
                Err(_) => return Self::Unknown,
            }
        }
        Self::Unknown
    }

    /// Parses `/proc/TID/syscall`, which begins with the number of the call.
    fn parse(text: &str) -> Self {
        let mut words = text.split_ascii_whitespace();
        let Some(Ok(number)) = words.next().map(str::parse::<i64>) else {
            return Self::Unknown;
        };
        let arguments: Vec<u64> = words
            .map_while(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok())
            .collect();
        let flags = |index: usize| arguments.get(index).copied().unwrap_or(0);
        if RENAMES.contains(&number) {
            return Self::Rename;
        }
        if let Some((_, at)) = STATS.iter().find(|(stat, _)| *stat == number) {
            let is_of_path = at.is_none_or(|at| flags(at) & AT_EMPTY_PATH == 0);
            return if is_of_path { Self::Stat } else { Self::Other };
        }
        let creates_only = OPENS
            .iter()
            .any(|&(open, at)| open == number && flags(at) & CREATES_ONLY == CREATES_ONLY);
        if creates_only || PASSING.contains(&number) {
            return Self::Passing;
        }
        Self::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_told_by_their_numbers() {
        assert_eq!(Call::parse("-1 0x7ffe 0x7f00"), Call::Other);
        assert_eq!(Call::parse("0 0x3 0x7ffe 0x400"), Call::Other);
        assert_eq!(Call::parse(""), Call::Unknown);
        if let Some(number) = RENAMES.first() {
            assert_eq!(Call::parse(&format!("{number} 0x1 0x2")), Call::Rename);
        }
        assert_eq!(Call::of(|| read(u32::MAX)), Call::Unknown);
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn calls_of_paths_and_of_descriptors_differ() {
        for (text, call) in [
            ("4 0x7ffe 0x7f00 0x0", Call::Stat),
            ("5 0x3 0x7f00 0x0", Call::Other),
            ("262 0xffffff9c 0x7ffe 0x7f00 0x100 0x0", Call::Stat),
            ("262 0x3 0x7ffe 0x7f00 0x1000 0x0", Call::Other),
            ("332 0xffffff9c 0x7ffe 0x800 0xfff", Call::Stat),
            ("332 0x3 0x7ffe 0x1000 0xfff", Call::Other),
            ("257 0xffffff9c 0x7ffe 0x800c1 0x1b6", Call::Passing),
            ("257 0xffffff9c 0x7ffe 0x80041 0x1b6", Call::Other),
            ("2 0x7ffe 0xc1 0x1b6", Call::Passing),
            ("83 0x7ffe 0x1ff", Call::Passing),
        ] {
            assert_eq!(Call::parse(text), call, "{text}");
        }
    }
}
