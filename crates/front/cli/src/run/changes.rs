//! The directory that keeps the changes of `--overlay DIR`.
//!
//! The command can create set-user-ID files in the directory, and its files run with the command's
//! rights. So the directory must belong to the caller and be closed to all other users. It is
//! checked and used through descriptors, because its name may refer to another directory a moment
//! later.

use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use forerun_sandbox::Sandbox;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, mkdirat, open, openat};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::error::{Failure, Result};
use crate::exit::Exit;

use super::attach::by_descriptor;

/// Its subdirectories: the changes, and the working directory of overlayfs.
pub const UPPER: &str = "upper";
pub const WORK: &str = "work";
/// Permissions of users other than the owner.
const OF_OTHERS: u32 = 0o077;

pub struct Layers {
    pub upper: OwnedFd,
    pub work: OwnedFd,
}

/// The locked directory. Two overlays on one directory would destroy each other's work.
pub struct OverlayDir(OwnedFd);

impl OverlayDir {
    /// Creates the directory and its subdirectories if they are missing.
    pub fn open(dir: &Path) -> Result<Self> {
        let failure = |error: &io::Error| Failure::output(error).of(dir.display());
        match DirBuilder::new().mode(0o700).create(dir) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made.map_err(|error| failure(&error))?,
        }
        let opened = open_checked(dir)?;
        match flock(&opened, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::AGAIN) => {
                let message = "another forerun run uses this directory";
                return Err(refusal(message).of(dir.display()));
            }
            locked => locked.map_err(|error| failure(&error.into()))?,
        }
        for (name, mode) in [(UPPER, 0o755), (WORK, 0o700)] {
            match mkdirat(&opened, name, Mode::from_raw_mode(mode)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(failure(&error.into())),
            }
        }
        layers(&opened, dir)?;
        Ok(Self(opened))
    }

    /// Allows removing the working directory of overlayfs.
    pub fn sandbox(&self, sandbox: Sandbox) -> Sandbox {
        let sandbox = sandbox.write_below(self.work());
        sandbox.remove_directories_in(by_descriptor(&self.0))
    }

    /// Removes the working directory of overlayfs, which contains whiteouts and a directory without
    /// permissions.
    pub fn close(self) {
        let work = self.work();
        let open = Permissions::from_mode(0o700);
        let removed = std::fs::set_permissions(work.join(WORK), open)
            .and_then(|()| std::fs::remove_dir_all(&work));
        if let Err(error) = removed {
            tracing::debug!("{}: {error}", work.display());
        }
    }

    fn work(&self) -> PathBuf {
        by_descriptor(&self.0).join(WORK)
    }
}

impl Layers {
    /// Opens the directories that [`OverlayDir::open`] has created, in another mount namespace.
    pub fn open(dir: &Path) -> Result<Self> {
        layers(&open_checked(dir)?, dir)
    }
}

/// Opens the directory. Fails if another user could have created it or its contents.
fn open_checked(dir: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = open(dir, flags, Mode::empty());
    let opened = opened.map_err(|error| Failure::output(&error.into()).of(dir.display()))?;
    let mode = check_owner(&opened, dir)?;
    if mode & OF_OTHERS != 0 {
        let message = "other users can enter it, and run set-user-ID files in it with your rights";
        let hint = format!("close it: chmod 700 {}", dir.display());
        return Err(refusal(message).hint(hint).of(dir.display()));
    }
    Ok(opened)
}

fn layers(opened: &OwnedFd, dir: &Path) -> Result<Layers> {
    let layer = |name: &str| {
        let path = dir.join(name);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let layer = openat(opened, name, flags, Mode::empty()).map_err(|error| match error {
            Errno::NOTDIR | Errno::LOOP => {
                let failure = refusal("is not a directory").hint(HINT);
                failure.of(path.display())
            }
            error => Failure::output(&error.into()).of(path.display()),
        })?;
        check_owner(&layer, &path).map(|_| layer)
    };
    Ok(Layers {
        upper: layer(UPPER)?,
        work: layer(WORK)?,
    })
}

const HINT: &str = "name a new directory, or an empty one of yours";

/// Returns the mode of a directory. Fails if it does not belong to the caller.
fn check_owner(opened: impl AsFd, path: &Path) -> Result<u32> {
    let stat = fstat(opened);
    let stat = stat.map_err(|error| Failure::output(&error.into()).of(path.display()))?;
    if stat.st_uid != geteuid().as_raw() {
        let failure = refusal("belongs to another user").hint(HINT);
        return Err(failure.of(path.display()));
    }
    Ok(stat.st_mode)
}

fn refusal(message: &str) -> Failure {
    Failure::new(Exit::Output, "output", message)
}
