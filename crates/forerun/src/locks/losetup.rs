//! Finds files behind loop devices that no path leads to any more.
//!
//! `/sys` names the file behind a loop device by its path, which may be deleted or in another mount
//! namespace while the file has other names. Asking for its inode takes an ioctl, which losetup(8)
//! makes; only root and the group `disk` may.

use std::path::Path;
use std::process::{Command, Stdio};

/// Device number and inode of a file.
pub type FileId = ((u32, u32), u64);

/// Returns the file behind a loop device; `None` if losetup(8) cannot tell.
pub fn file_behind(device: &Path) -> Option<FileId> {
    let programs = ["/usr/sbin/losetup", "/sbin/losetup", "/usr/bin/losetup"];
    let program = programs.iter().find(|path| Path::new(path).is_file())?;
    let output = Command::new(program)
        .args(["--list", "--noheadings"])
        .args(["--output", "BACK-MAJ:MIN,BACK-INO"])
        .arg(device)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .ok()?;
    parse(std::str::from_utf8(&output.stdout).ok()?)
}

/// Parses `254:0 6195051`, with the padding of a table.
fn parse(line: &str) -> Option<FileId> {
    let mut words = line.split_whitespace();
    let (major, minor) = words.next()?.split_once(':')?;
    let device = (major.parse().ok()?, minor.parse().ok()?);
    let inode = words.next()?.parse().ok()?;
    words.next().is_none().then_some((device, inode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        for line in ["254:0 6195051\n", "     254:0   6195051\n"] {
            assert_eq!(parse(line), Some(((254, 0), 6_195_051)), "{line}");
        }
        for other in ["", "254:0", "6195051 254:0", "a:b c", "254:0 1 2"] {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
