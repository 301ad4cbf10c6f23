//! Telling our mounts from others, without a list of them.
//!
//! The kernel keeps the path that a mount was made from as it was given, and shows it in
//! `/proc/self/mountinfo`. Ours are given as `/./srv/a.img`: the same file, in a spelling that no other
//! program uses. It needs no state that could be lost or go stale, and works across namespaces.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::drivers::mounts_type;

const MARK: &str = "/.";

/// Returns the source to give the kernel for the absolute path `path`.
pub fn marked(path: &Path) -> OsString {
    let mut source = OsString::from(MARK);
    source.push(path);
    source
}

/// Returns whether a mount of that type and source, as `/proc/self/mountinfo` has them, was made by
/// [`mount`](crate::mount()).
#[must_use]
pub fn is_ours(fstype: &str, source: &OsStr) -> bool {
    mounts_type(fstype) && image_of(source).is_some()
}

/// Returns the image, or the loop device, that a mount of ours was made from.
#[must_use]
pub fn image_of(source: &OsStr) -> Option<PathBuf> {
    let path = source.as_bytes().strip_prefix(MARK.as_bytes())?;
    let path = Path::new(OsStr::from_bytes(path));
    path.is_absolute().then(|| path.to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_and_others() {
        let source = marked(Path::new("/srv/a.img"));
        assert_eq!(source, "/./srv/a.img");
        assert_eq!(image_of(&source).unwrap(), Path::new("/srv/a.img"));
        assert!(is_ours("erofs", &source));
        assert!(!is_ours("ext4", &source));
        for other in ["/srv/a.img", "overlay", "/.", "/.hidden", ""] {
            assert!(!is_ours("erofs", OsStr::new(other)), "{other}");
        }
    }
}
