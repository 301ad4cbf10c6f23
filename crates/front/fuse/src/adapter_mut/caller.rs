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
        match text.split_ascii_whitespace().next().map(str::parse::<i64>) {
            Some(Ok(number)) if RENAMES.contains(&number) => Self::Rename,
            Some(Ok(_)) => Self::Other,
            Some(Err(_)) | None => Self::Unknown,
        }
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
}
