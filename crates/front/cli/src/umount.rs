//! `forerun umount`: unmounts, including mounts of killed processes.

use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use forerun_fuse::{FSTYPE, Liveness, UmountError, UmountOptions, liveness_of, user_of};
use forerun_sys::mount_table::MountEntry;

use crate::context::Context;
use crate::error::{Failure, Result, reason, without_errno};
use crate::exit::Exit;
use crate::json;
use crate::patience::until_unused;
use crate::socket::{ANSWER_TIMEOUT, Silent, ask_all};

/// Unmount images, even if the serving process was killed
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  forerun umount /mnt
  forerun umount --lazy /mnt          a program still uses it
  forerun umount --dead               all mounts whose process is gone")]
pub struct UmountArgs {
    /// If the mount is in use, detach it now, and end it when it is unused
    #[arg(short, long)]
    pub lazy: bool,
    /// Unmount even if the mount is not forerun's, or has other mounts inside
    ///
    /// If the mount is in use, pending and later requests of its users fail.
    #[arg(long)]
    pub force: bool,
    /// Unmount all mounts whose serving process is gone
    #[arg(long, conflicts_with = "dirs")]
    pub dead: bool,
    /// Mount point
    #[arg(required_unless_present = "dead", value_hint = ValueHint::DirPath)]
    pub dirs: Vec<PathBuf>,
}

/// Unmounts all given mounts, as far as possible.
pub fn run(context: &Context, args: &UmountArgs) -> Result {
    let mut exit = Exit::Ok;
    for dir in &args.dirs {
        if let Err(failure) = unmount(dir, args) {
            exit = exit.and(context.report(&failure));
        }
    }
    if args.dead {
        exit = exit.and(unmount_dead(context, args)?);
    }
    Ok(exit)
}

fn unmount_dead(context: &Context, args: &UmountArgs) -> Result {
    let mut exit = Exit::Ok;
    let mut left = Vec::new();
    loop {
        // A mount may have hidden another one.
        let mut dead = dead_mounts(&[])?;
        dead.retain(|entry| !left.contains(entry));
        if dead.is_empty() {
            return Ok(exit);
        }
        for entry in dead {
            if let Err(failure) = unmount(&entry.mount_point, args) {
                exit = exit.and(context.report(&failure));
                left.push(entry);
            }
        }
    }
}

/// The number of a user without a mapping in this namespace.
const UNKNOWN_USER: u32 = 65534;

/// Returns the mounts of this user, or of all users for root, that no process serves. Mounts of the
/// devices in `served` are not tested.
pub fn dead_mounts(served: &[String]) -> Result<Vec<MountEntry>> {
    let all = forerun_sys::mount_table::mounts();
    let mut all = all.map_err(|error| {
        Failure::new(Exit::Mount, "umount", reason(&error)).of("/proc/self/mountinfo")
    })?;
    let caller = rustix::process::geteuid();
    let is_callers =
        |user: u32| user == caller.as_raw() || caller.is_root() && user != UNKNOWN_USER;
    all.retain(|entry| {
        let (major, minor) = entry.device;
        entry.fstype == FSTYPE
            && user_of(entry).is_some_and(is_callers)
            && !served.contains(&format!("{major}:{minor}"))
            && liveness_of(entry) == Liveness::Dead
    });
    Ok(all)
}

pub fn unmount(dir: &Path, args: &UmountArgs) -> Result<()> {
    let options = UmountOptions {
        lazy: args.lazy,
        force: args.force,
    };
    by_kernel(dir, args.lazy).unwrap_or_else(|| {
        let unmount = || by_fuse(dir, options);
        let is_busy = |error: &UmountError| matches!(error, UmountError::Busy { .. });
        until_unused(unmount, is_busy).map_err(|error| {
            let message = without_errno(&error.to_string());
            Failure::new(Exit::Mount, "umount", message).maybe_hint(error.hint().as_deref())
        })
    })
}

/// Unmounts a mount that the kernel serves. Returns `None` if `dir` shows another mount.
fn by_kernel(dir: &Path, lazy: bool) -> Option<Result<()>> {
    let entry = forerun_sys::mountpoint::mount_at(dir).ok()??;
    if !forerun_kernel::is_ours(&entry.fstype, &entry.source) {
        return None;
    }
    let taken = until_unused(
        || forerun_kernel::take_down(&entry, lazy),
        |error| matches!(error, forerun_kernel::Error::Busy { .. }),
    );
    Some(taken.map_err(|error| kernel_failure(&error)))
}

/// Unmounts a new mount, because the caller was interrupted.
pub fn take_back(mount: Option<&MountEntry>) -> Result {
    let taken = mount.map_or(Ok(()), |mount| forerun_kernel::take_down(mount, true));
    taken.map_err(|error| kernel_failure(&error))?;
    Ok(Exit::Interrupted)
}

fn kernel_failure(error: &forerun_kernel::Error) -> Failure {
    let failure = Failure::new(Exit::Mount, "umount", without_errno(&error.to_string()));
    match error {
        forerun_kernel::Error::Umount { source, .. }
            if source.kind() == std::io::ErrorKind::PermissionDenied =>
        {
            failure.hint("it was mounted by root: use sudo")
        }
        forerun_kernel::Error::Busy { .. } => {
            failure.hint("--lazy detaches it now, and ends it when it is unused")
        }
        forerun_kernel::Error::HoldsMount { inner: above, .. }
        | forerun_kernel::Error::Covered { path: above } => {
            failure.hint(format!("unmount that first: umount {}", above.display()))
        }
        _ => failure,
    }
}

/// Unmounts a FUSE mount. A mount to which `subtype=` gave another type is recognised by its
/// serving process.
fn by_fuse(dir: &Path, options: UmountOptions) -> std::result::Result<(), UmountError> {
    match forerun_fuse::umount(dir, options) {
        Err(UmountError::NotOurs { path, .. }) if is_served(&path) => {
            let force = true;
            forerun_fuse::umount(dir, UmountOptions { force, ..options })
        }
        unmounted => unmounted,
    }
}

fn is_served(path: &Path) -> bool {
    let Ok(Some(entry)) = forerun_sys::mountpoint::mount_at(path) else {
        return false;
    };
    let device = format!("{}:{}", entry.device.0, entry.device.1);
    let asked = ask_all(ANSWER_TIMEOUT);
    let is_silent = |process: &Silent| process.serves(&device) == Some(true);
    if asked.silent.iter().any(is_silent) {
        return true;
    }
    asked
        .answers
        .iter()
        .any(|told| json::text(&told.mount, "device") == device)
}
