//! Trees with everything that the format can store, their images, and how Linux and fsck.erofs read
//! them.

use std::ffi::CString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forerun_build::{BuildError, Tree};
use forerun_erofs::write::{ErofsOptions, write};
use forerun_io::Observer;
use forerun_testkit::{Mounted, require};
use rustix::mount::{MountFlags, mount};

pub use forerun_testkit::everything::{run, xattrs_of};

/// Returns whether the machine has the tools and rights to create the trees and inspect the images.
pub fn oracles() -> bool {
    let tools = ["mount", "umount", "fsck.erofs", "mkfs.erofs"];
    require::root()
        && tools.iter().all(|tool| require::program(tool).is_some())
        && require::kernel_filesystem("erofs")
}

/// Creates every node type and every kind of contents, with POSIX ACLs, which EROFS stores too.
pub fn everything(dir: &Path) {
    forerun_testkit::everything::everything(dir);
    add_acls(&dir.join("xattrs"));
}

/// Adds POSIX ACLs to the directory of extended attributes.
pub fn add_acls(dir: &Path) {
    xattr::set(dir.join("file 3"), "trusted.overlay.origin", b"m").unwrap();
    let access = acl(&[
        (1, 6, NOBODY),
        (2, 6, 1234),
        (4, 4, NOBODY),
        (8, 4, 77),
        (16, 6, NOBODY),
        (32, 4, NOBODY),
    ]);
    xattr::set(dir.join("file 4"), "system.posix_acl_access", &access).unwrap();
    let default = acl(&[
        (1, 7, NOBODY),
        (2, 7, 5),
        (4, 5, NOBODY),
        (16, 7, NOBODY),
        (32, 5, NOBODY),
    ]);
    xattr::set(dir, "system.posix_acl_default", &default).unwrap();
}

/// The id in ACL entries that have none.
const NOBODY: u32 = u32::MAX;

/// Encodes an ACL as its xattr stores it: tag, permissions and id of each entry.
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (kind, permissions, id) in entries {
        bytes.extend_from_slice(&kind.to_le_bytes());
        bytes.extend_from_slice(&permissions.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}

pub fn image(tree: &Tree, options: &ErofsOptions) -> Result<Vec<u8>, BuildError> {
    let mut out = Vec::new();
    let len = write(tree, options, &mut out, &Arc::new(Observer::default()))?;
    assert_eq!(len, out.len() as u64);
    Ok(out)
}

/// How Linux reads the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    File,
    Loop,
}

pub fn mounted(image: &Path, path: PathBuf, via: Via) -> Mounted {
    match via {
        Via::File => mounted_with(image, path, ""),
        Via::Loop => Mounted::new("erofs", "ro,loop", image, path),
    }
}

/// Mounts the file directly. mount(8) would create a loop device.
pub fn mounted_with(image: &Path, path: PathBuf, options: &str) -> Mounted {
    fs::create_dir_all(&path).unwrap();
    let options = CString::new(options).unwrap();
    let flags = MountFlags::RDONLY;
    mount(image, &path, c"erofs", flags, options.as_c_str()).unwrap();
    Mounted { path }
}
