//! exFAT volumes that mkfs.exfat makes and fsck.exfat judges.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use crate::everything::run;
use crate::{children, require};

/// Makes a volume of `len` bytes in a file, or of a file or device as it is where that is 0. Returns
/// whether this machine can, and can judge it.
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

/// Returns whether fsck.exfat finds no error, and its report; nothing where there is no fsck.exfat.
pub fn fsck(path: &Path) -> Option<(bool, String)> {
    let program = require::program("fsck.exfat")?;
    let output = children::output(Command::new(program).arg("-n").arg(path)).unwrap();
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    Some((output.status.success() && !text.contains("ERROR"), text))
}

/// Asserts that fsck.exfat, if there is one, calls the volume clean.
#[track_caller]
pub fn assert_clean(path: &Path) {
    if let Some((is_sound, text)) = fsck(path) {
        assert!(is_sound && text.contains("clean"), "{text}");
    }
}
