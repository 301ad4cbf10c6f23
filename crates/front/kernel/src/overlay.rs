//! The overlayfs of a composefs mount. The image's EROFS is the layer with the names; the object
//! store and the base directories are data-only layers, reached only by redirects. A writable layer
//! can be on top.
//!
//! The EROFS mount is not attached anywhere: overlayfs gets its descriptor and holds it until the
//! overlayfs itself is unmounted. Kernels before 6.15 accept mounts only by path, so the EROFS is
//! attached to a temporary directory while the overlayfs is created.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::Path;

use forerun_vfs::Verity;
use rustix::fs::CWD;
use rustix::mount::{MoveMountFlags, UnmountFlags, move_mount};

use crate::context::Context;
use crate::drivers::OVERLAY;
use crate::error::Error;
use crate::named::Named;
use crate::options::Options;

/// Option for the layer with the names; the `+` is part of the option.
const LOWER: &str = "lowerdir+";
const DATA: &str = "datadir+";

/// Mounts an overlayfs of `lower` and the files in `stores`. `source` is the mount source shown in
/// mountinfo.
pub fn over(
    lower: &OwnedFd,
    stores: &[OsString],
    source: &OsStr,
    options: &Options,
) -> Result<OwnedFd, Error> {
    let by_descriptor = context(source, options)?.set_fd(LOWER, lower);
    match by_descriptor.and_then(|context| finish(context, stores, options)) {
        Err(Error::Refused(refusals)) => {
            for refusal in refusals {
                tracing::debug!("{refusal}; with a temporary mountpoint then");
            }
            by_path(lower, stores, source, options)
        }
        done => done,
    }
}

/// Does the same as [`over`] on kernels that do not accept descriptors of detached mounts.
fn by_path(
    lower: &OwnedFd,
    stores: &[OsString],
    source: &OsStr,
    options: &Options,
) -> Result<OwnedFd, Error> {
    let failed = |path: &Path, source| Error::Attach {
        path: path.to_path_buf(),
        source,
    };
    let dir = tempfile::Builder::new().prefix("forerun-lower-").tempdir();
    let dir = dir.map_err(|error| failed(&std::env::temp_dir(), error))?;
    let path = dir.path();
    attach(lower, path).map_err(|error| failed(path, error.into()))?;
    let made = context(source, options)
        .and_then(|context| context.set(LOWER, path))
        .and_then(|context| finish(context, stores, options));
    // The overlayfs, if it was created, has its own clone of the mount.
    let detached = rustix::mount::unmount(path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
    detached.map_err(|error| failed(path, error.into()))?;
    made
}

fn context(source: &OsStr, options: &Options) -> Result<Context, Error> {
    let verity = match options.verity {
        Verity::Off => "off",
        Verity::On => "on",
        Verity::Require => "require",
    };
    let what = "overlayfs over the image and its objects";
    let mut context = Context::open(OVERLAY, what.to_string())?
        .set("source", source)?
        .set("metacopy", "on")?
        .set("redirect_dir", "on")?;
    // Linux before 6.6 lacks the option.
    if options.verity != Verity::Off {
        context = context.set("verity", verity)?;
    }
    Ok(context)
}

fn finish(mut context: Context, stores: &[OsString], options: &Options) -> Result<OwnedFd, Error> {
    for store in stores {
        context = context.set(DATA, store.as_os_str())?;
    }
    let Some(upper) = &options.upper else {
        return context.mount(options);
    };
    // Open until the mount is made: their names may lead through these descriptors.
    let (dir, work) = (Named::open(&upper.dir)?, Named::open(&upper.work)?);
    let context = context
        .set("upperdir", dir.name().as_os_str())?
        .set("workdir", work.name().as_os_str())?;
    context.mount_writable(options)
}

/// Attaches a mount to a directory that only this user can change.
fn attach(mount: &OwnedFd, dir: &Path) -> rustix::io::Result<()> {
    move_mount(mount, "", CWD, dir, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use forerun_testkit::{require, temp_dir};

    use super::*;

    /// Tests the path for kernels before 6.15, with a tmpfs in place of the EROFS.
    #[test]
    fn a_lower_layer_by_its_path() {
        if !require::root() || !require::kernel_filesystem(OVERLAY) {
            return;
        }
        let dir = temp_dir("overlay-by-path");
        let mnt = dir.path().join("mnt");
        fs::create_dir(&mnt).unwrap();
        let context = Context::open("tmpfs", "tmpfs".to_string()).unwrap();
        let lower = context.mount(&Options::default()).unwrap();
        let objects = dir.path().join("objects");
        fs::create_dir(&objects).unwrap();
        let (stores, source) = ([objects.into_os_string()], OsStr::new("/./image"));
        let options = Options::default();
        let made = by_path(&lower, &stores, source, &options).unwrap();
        attach(&made, &mnt).unwrap();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        rustix::mount::unmount(&mnt, UnmountFlags::DETACH).unwrap();
        let of_us: Vec<_> = mounts
            .lines()
            .filter(|line| line.contains("/./image"))
            .collect();
        assert_eq!(of_us.len(), 1, "{mounts}");
        assert!(of_us[0].contains("nosuid,nodev"), "{}", of_us[0]);
        let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
        let left: Vec<_> = points.filter(|at| at.contains("/forerun-lower-")).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}
