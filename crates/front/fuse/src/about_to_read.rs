//! Recognises files that a program has opened and is about to read, before their first READ.
//!
//! Python's `open` checks whether a file is a terminal with an ioctl, and then reads it. The kernel
//! sends both to the server, and each costs the program a round trip. Once several ioctls in a row
//! were followed by a READ, small files are stored in the page cache before the ioctl is answered,
//! which makes the READ unnecessary. Now and then a file is not stored. If it is not read either,
//! the kernel has the files cached already, and nothing is stored until ioctls are followed by
//! READs again.

use std::sync::{Mutex, MutexGuard};

use forerun_io::Unpoisoned;

use crate::tuning::{ASKED_AND_READ, ASKED_FILES, ASKED_PROBE};

/// The ioctls that C libraries use to detect terminals: TCGETS, TCGETS2 and TIOCGWINSZ. Some
/// architectures use other numbers; there nothing is recognised, and READs are answered as usual.
const IS_TERMINAL: [u32; 3] = [0x5401, 0x802c_542a, 0x5413];

/// Recent terminal checks on one mount, and how many were followed by a READ.
#[derive(Default)]
pub struct AboutToRead {
    state: Mutex<Asked>,
}

#[derive(Default)]
struct Asked {
    /// Threads, and the last file that each has checked but not read since.
    unread: Vec<(u32, u64)>,
    /// Number of consecutive checks that were followed by a READ.
    read: u32,
    /// Number of files stored since the last one left out as a probe.
    stored: u32,
}

impl AboutToRead {
    /// Records an ioctl of thread `pid` on `file`. Returns whether to store the file now.
    pub fn on_ioctl(&self, command: u32, pid: u32, file: u64) -> bool {
        if !IS_TERMINAL.contains(&command) {
            return false;
        }
        let mut state = self.state();
        let before = state.unread.len();
        state.unread.retain(|&(thread, _)| thread != pid);
        if state.unread.len() < before {
            state.read = 0;
        }
        if state.read >= ASKED_AND_READ && state.stored < ASKED_PROBE {
            state.stored += 1;
            return true;
        }
        state.stored = 0;
        if state.unread.len() >= ASKED_FILES {
            // Forget threads that check one file and exit, such as script interpreters.
            state.unread.remove(0);
            state.read = 0;
        }
        state.unread.push((pid, file));
        false
    }

    pub fn on_read(&self, pid: u32, file: u64) {
        let mut state = self.state();
        let before = state.unread.len();
        state.unread.retain(|&asked| asked != (pid, file));
        if state.unread.len() < before {
            state.read = state.read.saturating_add(1);
        }
    }

    fn state(&self) -> MutexGuard<'_, Asked> {
        self.state.lock().unpoisoned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TCGETS: u32 = IS_TERMINAL[0];

    /// Checks and reads files as a single-threaded program does; with `cached`, no READs arrive.
    /// Returns the number of stores.
    fn program(about: &AboutToRead, files: std::ops::Range<u64>, cached: bool) -> u32 {
        let mut stored = 0;
        for file in files {
            match about.on_ioctl(TCGETS, 7, file) {
                true => stored += 1,
                false if cached => {}
                false => about.on_read(7, file),
            }
        }
        stored
    }

    #[test]
    fn files_are_stored_once_others_were_read_after_the_request() {
        let about = AboutToRead::default();
        assert_eq!(program(&about, 0..u64::from(ASKED_AND_READ), false), 0);
        let stored = program(&about, 100..100 + 10 * u64::from(ASKED_PROBE + 1), false);
        assert_eq!(stored, 10 * ASKED_PROBE, "one in so many is left out");
    }

    #[test]
    fn files_that_the_kernel_has_are_not_stored() {
        let about = AboutToRead::default();
        assert_eq!(program(&about, 0..1000, true), 0);
        program(&about, 0..1000, false);
        let stored = program(&about, 0..1000, true);
        assert!(
            stored <= ASKED_PROBE,
            "{stored} files until the first is left out"
        );
        assert_eq!(program(&about, 0..1000, true), 0);
        assert!(
            program(&about, 0..1000, false) > 900,
            "and once they are read again"
        );
    }

    #[test]
    fn several_programs_do_not_disturb_each_other_and_other_requests_say_nothing() {
        let about = AboutToRead::default();
        for file in 0..u64::from(ASKED_AND_READ / 2) {
            assert!(!about.on_ioctl(TCGETS, 1, file));
            assert!(!about.on_ioctl(TCGETS, 2, file + 100));
            about.on_read(1, file);
            about.on_read(2, file + 100);
            about.on_read(3, file);
        }
        assert!(!about.on_ioctl(TCGETS + 1, 1, 50));
        assert!(about.on_ioctl(TCGETS, 1, 50));
        // Threads that check a file and exit are forgotten.
        for pid in 10..10_000 {
            about.on_ioctl(TCGETS, pid, 1);
        }
        assert!(about.state().unread.len() <= ASKED_FILES);
        assert!(
            !about.on_ioctl(TCGETS, 1, 51),
            "those had their files already"
        );
    }
}
