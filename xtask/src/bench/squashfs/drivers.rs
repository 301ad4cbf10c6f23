//! Images mounted by the drivers that are compared.

use std::path::Path;

use anyhow::{Result, bail};
use forerun_testkit::require::find_program;

use super::rows::SquashfsContender;
use crate::bench::mount::{Access, Mounted};
use crate::bench::other::{Mount, Other, Reader, has_filesystem};

/// Mounts as root and waits until the mount is there.
pub fn mount(contender: SquashfsContender, forerun: &Path, image: &Path) -> Result<Mount> {
    match contender {
        SquashfsContender::Forerun => {
            Mounted::new(forerun, image, Access::ROOT).map(Mount::Forerun)
        }
        SquashfsContender::Kernel => {
            Other::kernel("squashfs", image, Reader::Loop).map(Mount::Other)
        }
        SquashfsContender::Squashfuse => {
            let arguments = ["-f".as_ref(), image.as_os_str()];
            Other::daemon("squashfuse_ll", &arguments).map(Mount::Other)
        }
        SquashfsContender::Unsquashfs | SquashfsContender::Mksquashfs => {
            bail!("{contender} mounts nothing")
        }
    }
}

/// Returns why a driver or program cannot take part, if it cannot.
pub fn missing(contender: SquashfsContender) -> Option<String> {
    let has = |name| find_program(name).is_some();
    let (there, why) = match contender {
        SquashfsContender::Forerun => (true, ""),
        SquashfsContender::Kernel => (has_filesystem("squashfs"), "the kernel has no SQUASHFS"),
        SquashfsContender::Squashfuse => (has("squashfuse_ll"), "squashfuse_ll is not installed"),
        SquashfsContender::Unsquashfs => (has("unsquashfs"), "unsquashfs is not installed"),
        SquashfsContender::Mksquashfs => (has("mksquashfs"), "mksquashfs is not installed"),
    };
    (!there).then(|| why.to_string())
}
