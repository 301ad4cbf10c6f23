//! Existing mounts on the directory, by the kernel or by a forerun process.

use std::fs::File;
use std::path::{Path, PathBuf};

use forerun_fuse::{Liveness, MountOptions};
use rustix::fs::{FlockOperation, flock};

use super::{MountArgs, Via, fsname};
use crate::context::Context;
use crate::error::{Failure, Result};
use crate::exit::Exit;

/// Looks for a forerun mount on the directory. The same image is success with `--if-needed`, and otherwise a failure of
/// its own. Any other is refused, but for a FUSE mount it leaves a dead old one to [`forerun_fuse::mount`], which can
/// replace it.
pub fn check(
    context: &Context,
    args: &MountArgs,
    options: &MountOptions,
    via: Via,
) -> Result<Option<Exit>> {
    if args.if_needed && (options.offset != 0 || options.size.is_some()) {
        let message = "--if-needed does not tell parts of a file from each other";
        return Err(Failure::usage(message).hint("leave out the option, or offset= and size="));
    }
    let Ok(Some(entry)) = forerun_sys::mountpoint::mount_at(&args.dir) else {
        return Ok(None);
    };
    let by_kernel = forerun_kernel::is_ours(&entry.fstype, &entry.source);
    let by_fuse = entry.fstype == forerun_fuse::FSTYPE;
    if !by_kernel && !by_fuse {
        return Ok(None);
    }
    let image = forerun_kernel::image_of(&entry.source);
    let image = image.unwrap_or_else(|| PathBuf::from(&entry.source));
    let image = file_of_loop(&image).unwrap_or(image);
    let dir = entry.mount_point.display();
    let message = format!("{} is already mounted on {dir}", image.display());
    let is_alive = || by_kernel || forerun_fuse::liveness_of(&entry) != Liveness::Dead;
    let exit = if image.as_os_str() == fsname(args).as_str() && is_alive() {
        Exit::Mounted
    } else if by_fuse && via == Via::Fuse {
        return Ok(None);
    } else {
        Exit::Mount
    };
    if args.if_needed && exit == Exit::Mounted {
        context.note(&message);
        return Ok(Some(Exit::Ok));
    }
    let failure = Failure::new(exit, "mount", message);
    Err(failure.hint(format!("unmount it first: forerun umount {dir}")))
}

/// Returns the file that a loop device shows.
fn file_of_loop(device: &Path) -> Option<PathBuf> {
    let name = device.strip_prefix("/dev").ok()?.to_str()?;
    let file = Path::new("/sys/block").join(name).join("loop/backing_file");
    let file = std::fs::read_to_string(file).ok()?;
    Some(file.trim_end_matches('\n').into())
}

/// Waits until no other process mounts on the directory with `--if-needed`.
pub fn wait_turn(dir: &Path) -> Option<File> {
    let dir = File::open(dir).ok()?;
    flock(&dir, FlockOperation::LockExclusive).ok()?;
    Some(dir)
}
