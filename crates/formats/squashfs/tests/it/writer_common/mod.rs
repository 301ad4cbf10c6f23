//! Trees with everything that the format can store, their images, and how Linux and unsquashfs read
//! them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use forerun_build::{BuildError, Tree};
use forerun_io::Observer;
use forerun_squashfs::write::{SquashfsOptions, write};
use forerun_testkit::{Mounted, require};

pub use forerun_testkit::everything::{everything, run, xattrs_of};

/// Returns whether the machine has the tools and rights to create the trees and inspect the images.
pub fn oracles() -> bool {
    let tools = ["mount", "umount", "unsquashfs"];
    require::root()
        && tools.iter().all(|tool| require::program(tool).is_some())
        && require::kernel_filesystem("squashfs")
}

pub fn image(tree: &Tree, options: &SquashfsOptions) -> Result<Vec<u8>, BuildError> {
    let mut out = Vec::new();
    let len = write(tree, options, &mut out, &Arc::new(Observer::default()))?;
    assert_eq!(len, out.len() as u64);
    Ok(out)
}

pub fn mounted(image: &Path, path: PathBuf) -> Mounted {
    Mounted::new("squashfs", "loop,ro", image, path)
}
