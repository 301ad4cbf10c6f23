//! `/proc/self/mountinfo`: what is mounted where, without touching any of it.
//!
//! Asking the mountpoint itself would send a request to whoever serves it, who may be dead.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A line of `/proc/self/mountinfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MountEntry {
    /// Major and minor number of the filesystem's device; for FUSE an anonymous one.
    pub device: (u32, u32),
    /// Where it is mounted.
    pub mount_point: PathBuf,
    /// Type, with the subtype where there is one.
    pub fstype: String,
    /// What is mounted, as it was named by who mounted it.
    pub source: OsString,
    /// Whether the filesystem itself is read-only, wherever it is mounted.
    pub read_only: bool,
}

/// All mounts this process sees, in the order in which they were made.
///
/// # Errors
/// That `/proc/self/mountinfo` cannot be read. Lines that cannot be understood are left out.
pub fn mounts() -> io::Result<Vec<MountEntry>> {
    let text = std::fs::read("/proc/self/mountinfo")?;
    Ok(text
        .split(|&byte| byte == b'\n')
        .filter_map(parse)
        .collect())
}

/// The mount that is seen at `mount_point`: the last of those that are stacked there.
///
/// # Errors
/// Those of [`mounts`].
pub fn top_mount(mount_point: &Path) -> io::Result<Option<MountEntry>> {
    let mut all = mounts()?;
    all.retain(|entry| entry.mount_point == mount_point);
    Ok(all.pop())
}

/// `id parent major:minor root mount_point options [optional...] - fstype source super_options`
fn parse(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|&byte| byte == b' ');
    let device = std::str::from_utf8(fields.nth(2)?).ok()?;
    let (major, minor) = device.split_once(':')?;
    let mount_point = unescape(fields.nth(1)?);
    let mut fields = fields.skip_while(|field| *field != b"-").skip(1);
    let fstype = unescape(fields.next()?);
    let source = unescape(fields.next()?);
    let mut options = fields
        .next()
        .unwrap_or_default()
        .split(|&byte| byte == b',');
    Some(MountEntry {
        device: (major.parse().ok()?, minor.parse().ok()?),
        mount_point: PathBuf::from(OsString::from_vec(mount_point)),
        fstype: String::from_utf8_lossy(&fstype).into_owned(),
        source: OsString::from_vec(source),
        read_only: options.any(|option| option == b"ro"),
    })
}

/// Blanks, tabs, newlines, backslashes and hashes are written as three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let code = match first {
            b'\\' => tail.get(..3).and_then(octal),
            _ => None,
        };
        out.push(code.unwrap_or(first));
        rest = if code.is_some() {
            tail.get(3..).unwrap_or_default()
        } else {
            tail
        };
    }
    out
}

fn octal(digits: &[u8]) -> Option<u8> {
    let text = std::str::from_utf8(digits).ok()?;
    u8::from_str_radix(text, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_and_without_optional_fields() {
        for line in [
            r"36 35 98:0 / /mnt/a\040b\134 rw,noatime shared:1 master:2 - fuse.forerun /img\011x ro",
            r"36 35 98:0 / /mnt/a\040b\134 rw,noatime - fuse.forerun /img\011x ro,user_id=0",
        ] {
            let entry = parse(line.as_bytes()).unwrap();
            assert_eq!(entry.device, (98, 0));
            assert_eq!(entry.mount_point, Path::new("/mnt/a b\\"));
            assert_eq!(entry.fstype, "fuse.forerun");
            assert_eq!(entry.source, "/img\tx");
            assert!(entry.read_only, "of the filesystem, not of the mount");
        }
    }

    #[test]
    fn nonsense_is_left_out() {
        for line in [
            "",
            "36 35",
            "36 35 98 / /mnt rw - a b c",
            "1 2 3:4 / /mnt rw",
        ] {
            assert_eq!(parse(line.as_bytes()), None, "{line}");
        }
        assert_eq!(unescape(br"a\99\"), br"a\99\");
    }

    #[test]
    fn this_machine_has_a_root() {
        assert!(top_mount(Path::new("/")).unwrap().is_some());
    }
}
