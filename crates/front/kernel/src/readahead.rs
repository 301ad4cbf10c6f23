//! Raises the kernel's readahead for a mount from an image file.
//!
//! Such a mount has its own device in sysfs with 128 KiB of readahead, too little for sequential
//! reads. Only the driver knows the number in the device's name, so every device that appears
//! during the mount is changed. A mount that another program makes at the same moment also gets
//! more readahead, which is harmless.

use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const DEVICES: &str = "/sys/class/bdi";
/// Readahead in KiB, the same as for FUSE mounts.
const READ_AHEAD_KB: &str = "4096\n";

/// The devices that existed before a mount.
pub struct Before {
    prefix: &'static str,
    names: HashSet<OsString>,
}

impl Before {
    pub fn look(prefix: &'static str) -> Self {
        let names = names(prefix);
        Self { prefix, names }
    }

    /// Raises the readahead of all devices that appeared since. Returns their number.
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
        // No other test in this process mounts anything.
        assert_eq!(Before::look("erofs-").lift(), 0);
    }
}
