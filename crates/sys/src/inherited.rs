//! Descriptors that this process inherited at its execve(2). They have no owner in the program
//! until one is [taken](take).

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::checked;

/// Inherited descriptors without an owner, except for the three standard ones.
static UNOWNED: OnceLock<Mutex<BTreeSet<RawFd>>> = OnceLock::new();

/// Lists the inherited descriptors that were not taken, except for the three standard ones.
///
/// The first call of a function of this module finds them: descriptors that are not close-on-exec.
/// The program must make this call before it opens such a descriptor itself; the standard library
/// opens none.
#[must_use]
pub fn numbers() -> Vec<RawFd> {
    unowned().iter().copied().collect()
}

/// Takes an inherited descriptor. Returns `None` for a descriptor that was not inherited, or was
/// taken before.
#[must_use]
pub fn take(number: RawFd) -> Option<OwnedFd> {
    unowned().remove(&number).then(|| {
        // SAFETY: the descriptor was open when the process began, so no value of the program owned
        // it. It has just been removed from the set of those without an owner.
        unsafe { OwnedFd::from_raw_fd(number) }
    })
}

/// Sets whether the next execve(2) closes these inherited descriptors. Skips descriptors that were
/// taken.
pub fn set_close_on_exec(numbers: &[RawFd], close: bool) {
    let unowned = unowned();
    let flag = if close { libc::FD_CLOEXEC } else { 0 };
    for number in numbers.iter().filter(|number| unowned.contains(number)) {
        // SAFETY: the call closes nothing, and no value of the program owns the descriptor.
        let set = checked(unsafe { libc::fcntl(*number, libc::F_SETFD, flag) });
        debug_assert!(set.is_ok(), "{number} is open");
    }
}

fn unowned() -> MutexGuard<'static, BTreeSet<RawFd>> {
    let unowned = UNOWNED.get_or_init(|| Mutex::new(find()));
    // A panic of another thread leaves the set consistent.
    unowned.lock().unwrap_or_else(PoisonError::into_inner)
}

fn find() -> BTreeSet<RawFd> {
    let listed = fs::read_dir("/proc/self/fd").into_iter().flatten();
    let numbers = listed.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let is_inherited = |number: &RawFd| {
        // SAFETY: the call changes nothing.
        let flags = checked(unsafe { libc::fcntl(*number, libc::F_GETFD) });
        *number > 2 && flags.is_ok_and(|flags| flags & libc::FD_CLOEXEC == 0)
    };
    numbers.filter(is_inherited).collect()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;
    use std::process::Command;

    use super::*;

    /// The variable that tells the second run of the test the number of the descriptor.
    const NUMBER: &str = "FORERUN_TEST_INHERITED";

    #[test]
    fn an_inherited_descriptor_is_taken_once_and_is_closed_where_that_is_wanted() {
        let Ok(number) = std::env::var(NUMBER) else {
            let (reader, mut writer) = std::io::pipe().unwrap();
            writer.write_all(b"text").unwrap();
            rustix::io::fcntl_setfd(&reader, rustix::io::FdFlags::empty()).unwrap();
            let again = Command::new(std::env::current_exe().unwrap())
                .args(["an_inherited_descriptor", "--test-threads=1"])
                .env(NUMBER, reader.as_raw_fd().to_string())
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&again.stdout);
            assert!(
                again.status.success() && text.contains("1 passed"),
                "{text}"
            );
            return;
        };
        let number: RawFd = number.parse().unwrap();
        assert!(numbers().contains(&number));
        let is_open_after_exec = || {
            let script = format!("test -e /proc/self/fd/{number}");
            Command::new("sh")
                .args(["-c", &script])
                .status()
                .unwrap()
                .success()
        };
        assert!(is_open_after_exec());
        set_close_on_exec(&[number], true);
        assert!(!is_open_after_exec());
        set_close_on_exec(&[number], false);
        assert!(is_open_after_exec());
        let mut file = File::from(take(number).unwrap());
        let mut text = [0; 4];
        file.read_exact(&mut text).unwrap();
        assert_eq!(&text, b"text");
        assert!(!numbers().contains(&number));
        drop(file);
        assert!(take(0).is_none() && take(number).is_none());
    }
}
