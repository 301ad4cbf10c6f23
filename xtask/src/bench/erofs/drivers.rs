//! Images mounted by the drivers that are compared, and why some cannot take part.

use std::path::Path;

use anyhow::{Context, Error, Result, bail};
use forerun_measure::mount::{Access, Mount, Mounted, Other, Reader};
use forerun_measure::programs::{find_program, has_filesystem};
use rustix::io::Errno;

use super::inputs::ErofsInputs;
use super::rows::{ErofsContender, ErofsImage, ErofsRow};

/// Mounts as root and waits until the mount is there.
pub fn mount(contender: ErofsContender, inputs: &ErofsInputs, image: ErofsImage) -> Result<Mount> {
    let path = inputs.image(image);
    let store = inputs.store(image);
    match contender {
        ErofsContender::Forerun => {
            let objects = store.as_deref();
            Mounted::with_objects(&inputs.forerun, &path, Access::ROOT, objects).map(Mount::Forerun)
        }
        ErofsContender::KernelLoop => Other::kernel("erofs", &path, Reader::Loop).map(Mount::Other),
        ErofsContender::KernelFile => Other::kernel("erofs", &path, Reader::File).map(Mount::Other),
        ErofsContender::KernelOverlay => overlay(&path, store.as_deref()).map(Mount::Other),
        ErofsContender::Erofsfuse => {
            let arguments = ["-f".as_ref(), path.as_os_str()];
            Other::daemon("erofsfuse", &arguments).map(Mount::Other)
        }
        ErofsContender::Fsck | ErofsContender::Mkfs | ErofsContender::Backing => {
            bail!("{contender} mounts nothing")
        }
    }
}

fn overlay(image: &Path, store: Option<&Path>) -> Result<Other> {
    let store = store.context("an image without objects needs no overlayfs")?;
    Other::kernel_overlay(image, Reader::File, store)
}

/// Returns why a driver or program cannot take part, if it cannot.
pub fn missing(inputs: &ErofsInputs, row: ErofsRow, contender: ErofsContender) -> Option<String> {
    let program = |name: &str| {
        let there = find_program(name).is_some();
        (!there).then(|| format!("{name} is not installed"))
    };
    match contender {
        // The kernel does that too, in the same way.
        ErofsContender::Forerun if row == ErofsRow::LsVia => {
            missing(inputs, row, ErofsContender::KernelFile)
        }
        ErofsContender::Forerun | ErofsContender::Backing => None,
        ErofsContender::Erofsfuse => program("erofsfuse"),
        ErofsContender::Fsck => program("fsck.erofs"),
        ErofsContender::Mkfs => program("mkfs.erofs"),
        ErofsContender::KernelLoop | ErofsContender::KernelFile | ErofsContender::KernelOverlay => {
            let needed: &[&str] = match contender {
                ErofsContender::KernelOverlay => &["erofs", "overlay"],
                _ => &["erofs"],
            };
            let lacks = needed.iter().find(|name| !has_filesystem(name));
            if let Some(name) = lacks {
                return Some(format!("the kernel has no {name}"));
            }
            let error = mount(contender, inputs, row.image()?)
                .and_then(Mount::finish)
                .err()?;
            lacks_feature(&error).map(str::to_string)
        }
    }
}

/// Returns what the kernel lacks, if that is why it refused to mount. All else is a failure of the run.
pub fn lacks_feature(error: &Error) -> Option<&'static str> {
    let errno = error
        .chain()
        .find_map(|cause| cause.downcast_ref::<Errno>())?;
    match *errno {
        Errno::NOTBLK => Some("the kernel mounts EROFS from block devices only, no files"),
        Errno::OPNOTSUPP => Some("the kernel reads no EROFS with the features of this image"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_kernel_lacks_is_left_out() {
        let refused = |errno: Errno| Err::<(), _>(errno).context("mount").unwrap_err();
        assert!(lacks_feature(&refused(Errno::NOTBLK)).is_some());
        assert!(lacks_feature(&refused(Errno::OPNOTSUPP)).is_some());
        assert!(lacks_feature(&refused(Errno::NOENT)).is_none());
        assert!(lacks_feature(&anyhow::anyhow!("else")).is_none());
    }
}
