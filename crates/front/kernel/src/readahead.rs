//! The kernel's own readahead for a mount of an image from its file.
//!
//! Such a mount has a device of its own for this in sysfs, with 128 KiB, which is little for sequential
//! reads. Its name contains a number that only the driver knows, so all new entries after a mount are
//! taken: the mount of another program in the same moment gets more readahead too, and nothing
//! else happens to it.

use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The directory of these devices in sysfs.
const DEVICES: &str = "/sys/class/bdi";
/// The largest readahead in KiB: as much as for mounts through FUSE.
const READ_AHEAD_KB: &str = "4096\n";

/// The devices that there were before a mount.
pub struct Before {
    /// The prefix of their names.
    prefix: &'static str,
    names: HashSet<OsString>,
}

impl Before {
    /// Records the devices that there are now, by the prefix of their names.
    pub fn look(prefix: &'static str) -> Self {
        let names = names(prefix);
        Self { prefix, names }
    }

    /// Raises the readahead of the devices that have come since, and returns their number.
    pub fn lift(&self) -> usize {
        let mut lifted = 0;
        for name in names(self.prefix).difference(&self.names) {
            let entry = Path::new(DEVICES).join(name).join("read_ahead_kb");
            match std::fs::write(&entry, READ_AHEAD_KB) {
                Ok(()) => lifted += 1,
                Err(error) => tracing::debug!("{}: {error}", entry.display()),
            }
        }
        lifted
    }
}

fn names(prefix: &str) -> HashSet<OsString> {
    let entries = std::fs::read_dir(DEVICES).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.file_name())
        .filter(|name| name.as_bytes().starts_with(prefix.as_bytes()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_there_before_is_left_alone() {
        // Other tests of this process mount nothing.
        assert_eq!(Before::look("erofs-").lift(), 0);
    }
}
