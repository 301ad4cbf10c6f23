//! exFAT volumes made by mkfs.exfat and checked by fsck.exfat.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use crate::everything::run;
use crate::{children, require};

/// Makes a volume of `len` bytes in a file. If `len` is 0, uses the existing file or device.
/// Returns whether this machine can make and check it.
pub fn mkfs(path: &Path, len: u64, options: &[&str]) -> bool {
    if ["mkfs.exfat", "fsck.exfat"]
        .map(require::program)
        .contains(&None)
    {
        return false;
    }
    if len > 0 {
        File::create(path).unwrap().set_len(len).unwrap();
    }
    run(Command::new("mkfs.exfat").args(options).arg(path));
    true
}

/// Returns whether fsck.exfat finds no error, and its report. Returns `None` without fsck.exfat.
pub fn fsck(path: &Path) -> Option<(bool, String)> {
    let program = require::program("fsck.exfat")?;
    let output = children::output(Command::new(program).arg("-n").arg(path)).unwrap();
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    Some((output.status.success() && !text.contains("ERROR"), text))
}

#[track_caller]
pub fn assert_clean(path: &Path) {
    if let Some((is_sound, text)) = fsck(path) {
        assert!(is_sound && text.contains("clean"), "{text}");
    }
}
