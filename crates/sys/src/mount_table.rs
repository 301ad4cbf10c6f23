//! Reads `/proc/self/mountinfo`, the table of mounts, without accessing any mount.
//!
//! An access to the mountpoint would send a request to the process that serves it, and that process
//! may be dead. Every user with fusermount3 chooses the source of a mount and a part of its type:
//! both are texts to show, not names to open.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use crate::read_kernel_file;

/// A line of `/proc/self/mountinfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MountEntry {
    /// Number of the mount. Another mount may get it once this one has ended.
    pub id: u64,
    /// Number of the mount that this one is attached to.
    pub parent: u64,
    /// Major and minor number of the filesystem's device; for FUSE an anonymous device.
    pub device: (u32, u32),
    /// The directory of the filesystem that is mounted: `/`, except for a bind mount or a control
    /// group of a namespace.
    pub root: PathBuf,
    /// The path of the mountpoint.
    pub mount_point: PathBuf,
    /// Type, with the subtype if there is one.
    pub fstype: String,
    /// The source, as the call that mounted it spelled it.
    pub source: OsString,
    /// Options of the filesystem itself, separated by commas.
    pub options: String,
}

impl MountEntry {
    /// Returns whether the filesystem has this option without a value.
    #[must_use]
    pub fn has_option(&self, name: &str) -> bool {
        self.options.split(',').any(|option| option == name)
    }

    /// Returns whether the filesystem itself is read-only, wherever it is mounted.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.has_option("ro")
    }
}

/// Returns all mounts that this thread sees, in the order in which they were made. A thread may be
/// in another mount namespace than its process. Skips lines that cannot be parsed.
///
/// # Errors
/// If `/proc/self/mountinfo` cannot be read.
pub fn mounts() -> io::Result<Vec<MountEntry>> {
    let table = read_kernel_file("/proc/thread-self/mountinfo");
    let table = table.or_else(|_| read_kernel_file("/proc/self/mountinfo"));
    Ok(parse_mounts(&table?))
}

/// Parses the text of a `mountinfo` file. Skips lines that cannot be parsed.
#[must_use]
pub fn parse_mounts(text: &[u8]) -> Vec<MountEntry> {
    text.split(|&byte| byte == b'\n')
        .filter_map(parse)
        .collect()
}

/// Returns whether this file or device is the source of a visible mount for writing. Compares only
/// the name of the source.
#[must_use]
pub fn is_mounted_for_writing(source: &Path) -> bool {
    let all = mounts().unwrap_or_default();
    let same = |entry: &&MountEntry| Path::new(&entry.source) == source;
    all.iter().filter(same).any(|entry| !entry.is_read_only())
}

/// Parses a line: `id parent major:minor root mount_point options [optional...] - fstype source
/// super_options`.
fn parse(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|&byte| byte == b' ');
    let id = number(fields.next()?)?;
    let parent = number(fields.next()?)?;
    let device = std::str::from_utf8(fields.next()?).ok()?;
    let (major, minor) = device.split_once(':')?;
    let root = path(fields.next()?);
    let mount_point = path(fields.next()?);
    let mut fields = fields.skip_while(|field| *field != b"-").skip(1);
    let fstype = unescape(fields.next()?);
    let source = unescape(fields.next()?);
    let options = fields.next().map(unescape).unwrap_or_default();
    Some(MountEntry {
        id,
        parent,
        device: (major.parse().ok()?, minor.parse().ok()?),
        root,
        mount_point,
        fstype: String::from_utf8_lossy(&fstype).into_owned(),
        source: OsString::from_vec(source),
        options: String::from_utf8_lossy(&options).into_owned(),
    })
}

fn number(field: &[u8]) -> Option<u64> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

fn path(field: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(unescape(field)))
}

/// Decodes a field, in which the kernel writes blanks, tabs, newlines, backslashes and hashes as
/// three octal digits.
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
            r"36 35 98:0 /d\040e /mnt/a\040b\134 rw shared:1 master:2 - fuse.forerun /img\011x ro,b",
            r"36 35 98:0 /d\040e /mnt/a\040b\134 rw - fuse.forerun /img\011x ro,b",
        ] {
            let entry = parse(line.as_bytes()).unwrap();
            assert_eq!((entry.id, entry.parent), (36, 35));
            assert_eq!(entry.device, (98, 0));
            assert_eq!(entry.root, Path::new("/d e"));
            assert_eq!(entry.options, "ro,b");
            assert_eq!(entry.mount_point, Path::new("/mnt/a b\\"));
            assert_eq!(entry.fstype, "fuse.forerun");
            assert_eq!(entry.source, "/img\tx");
            assert!(entry.is_read_only(), "of the filesystem, not of the mount");
        }
    }

    #[test]
    fn nonsense_is_left_out() {
        for line in [
            "",
            "36 35",
            "36 35 98 / /mnt rw - a b c",
            "1 2 3:4 / /mnt rw",
            "x 2 3:4 / /mnt rw - a b c",
        ] {
            assert_eq!(parse(line.as_bytes()), None, "{line}");
        }
        assert_eq!(unescape(br"a\99\"), br"a\99\");
    }
}
