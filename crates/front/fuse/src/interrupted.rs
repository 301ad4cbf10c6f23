//! Detects that a requesting thread no longer waits for its answer.
//!
//! The kernel reports this with FUSE_INTERRUPT, but `fuser` answers that with ENOSYS itself, after
//! which the kernel does not send it again. So the thread is inspected: after a fatal signal,
//! SIGKILL is pending in each thread of the process until the answer arrives. A thread for which
//! the kernel only read ahead is gone at once.
//!
//! A thread in another PID namespace has number 0 and never counts as interrupted.

use std::fs;
use std::io::ErrorKind;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

/// SIGKILL in the signal masks of /proc/PID/status.
const KILL: u64 = 1 << 8;

/// Returns whether thread `pid` has been killed or has ended.
pub fn is_interrupted(pid: u32) -> bool {
    let Some(thread) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return false;
    };
    match fs::read(format!("/proc/{pid}/status")) {
        Ok(status) => is_killed(&status),
        // /proc may hide threads of other users.
        Err(error) if error.kind() == ErrorKind::NotFound => {
            test_kill_process(thread) == Err(Errno::SRCH)
        }
        Err(_) => false,
    }
}

/// Returns whether the contents of /proc/PID/status show SIGKILL as pending.
fn is_killed(status: &[u8]) -> bool {
    status.split(|&byte| byte == b'\n').any(|line| {
        let mask = line
            .strip_prefix(b"SigPnd:")
            .or_else(|| line.strip_prefix(b"ShdPnd:"));
        let mask = mask.and_then(|mask| std::str::from_utf8(mask).ok());
        let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        mask.is_some_and(|mask| mask & KILL != 0)
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_pending_sigkill_shows_and_others_do_not() {
        for (status, expected) in [
            (
                "Name:\tdd\nSigPnd:\t0000000000000100\nShdPnd:\t0000000000000000\n",
                true,
            ),
            (
                "Name:\tdd\nSigPnd:\t0000000000000000\nShdPnd:\t0000000000000102\n",
                true,
            ),
            (
                "Name:\tdd\nSigPnd:\t0000000000000002\nSigBlk:\t0000000000000100\n",
                false,
            ),
            ("SigPnd:\tx\n", false),
            ("", false),
        ] {
            assert_eq!(is_killed(status.as_bytes()), expected, "{status}");
        }
    }

    #[test]
    fn threads_that_are_gone_are_interrupted_and_others_are_not() {
        assert!(!is_interrupted(std::process::id()));
        assert!(!is_interrupted(0) && !is_interrupted(u32::MAX));
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert!(is_interrupted(child.id()));
    }
}
