//! Tells forerun's mounts from others without keeping a list.
//!
//! The kernel shows a mount's source in `/proc/self/mountinfo` as it was given. forerun gives
//! `/./srv/a.img`, a spelling that no other program uses. This state cannot be lost or go stale,
//! and works across namespaces.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::drivers::mounts_type;

const MARK: &str = "/.";

pub fn marked(path: &Path) -> OsString {
    let mut source = OsString::from(MARK);
    source.push(path);
    source
}

/// Returns whether [`mount`](crate::mount()) created a mount with this type and source in
/// `/proc/self/mountinfo`.
#[must_use]
pub fn is_ours(fstype: &str, source: &OsStr) -> bool {
    mounts_type(fstype) && image_of(source).is_some()
}

/// Returns the image or loop device behind a mount source of forerun's, `None` for other sources.
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
