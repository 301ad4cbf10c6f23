//! Taking a mount down from outside, whoever serves it and whether or not they still live.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use forerun::locks::writer_is_at_work;
use forerun::{is_mounted_for_writing, top_mount};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::attach::find_helper;
use crate::mountpoint::{is_dead, is_fuse, resolve};
use crate::{FSTYPE, MountEntry, UmountError};

/// How long a volume may take to be written to its end.
const PATIENCE: Duration = Duration::from_secs(60);

/// How to unmount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UmountOptions {
    /// Detach now, end when the last user is gone.
    pub lazy: bool,
    /// Even if it is not one of forerun's mounts.
    pub force: bool,
}

/// Takes down the mount on `dir`. A mount whose process has died is taken down even if it is in use:
/// nothing can be read from it any more.
///
/// # Errors
/// [`UmountError`]: nothing or something else is mounted there, it is in use, it is not permitted.
pub fn umount(dir: &Path, options: UmountOptions) -> Result<(), UmountError> {
    let path = resolve(dir).map_err(|source| UmountError::Path {
        path: dir.to_path_buf(),
        source,
    })?;
    let entry = top_mount(&path).map_err(UmountError::MountInfo)?;
    let Some(entry) = entry else {
        return Err(UmountError::NotMounted { path });
    };
    if entry.fstype != FSTYPE && !options.force {
        let fstype = entry.fstype;
        return Err(UmountError::NotOurs { path, fstype });
    }
    match detach(&path, options.lazy) {
        Err(UmountError::Busy { .. }) if is_fuse(&entry) && is_dead(&path) => detach(&path, true),
        Ok(()) if is_fuse(&entry) && !entry.is_read_only() && !options.lazy => {
            wait_until_written(&entry);
            Ok(())
        }
        result => result,
    }
}

/// Waits until the volume of a mount that is gone has been written. It was mounted for writing, so
/// the serving process holds the lock of a writer until then. A source that is no file has no lock.
///
/// The lock alone does not tell which process holds it. Where a mount for writing of the same source is
/// still visible, the lock is that mount's: either it is another place of the same mount, which goes
/// on, or it was made after the volume had been written.
fn wait_until_written(gone: &MountEntry) {
    let source = Path::new(&gone.source);
    let Some(Ok(file)) = source.is_absolute().then(|| File::open(source)) else {
        return;
    };
    let patience = Instant::now() + PATIENCE;
    while writer_is_at_work(&file) {
        if is_mounted_for_writing(source) {
            return;
        }
        if Instant::now() > patience {
            tracing::warn!("{} is still being written to", source.display());
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Unmounts what is on top of `path`, as whoever may.
pub fn detach(path: &Path, lazy: bool) -> Result<(), UmountError> {
    let mut flags = UnmountFlags::NOFOLLOW;
    flags.set(UnmountFlags::DETACH, lazy);
    match rustix::mount::unmount(path, flags) {
        Ok(()) => Ok(()),
        Err(Errno::BUSY) => Err(UmountError::Busy {
            path: path.to_path_buf(),
        }),
        Err(Errno::PERM) => by_helper(path, lazy),
        Err(error) => Err(UmountError::System {
            path: path.to_path_buf(),
            source: error.into(),
        }),
    }
}

fn by_helper(path: &Path, lazy: bool) -> Result<(), UmountError> {
    let program = find_helper().ok_or(UmountError::NoHelper)?;
    let mut command = Command::new(&program);
    command.arg("-u");
    if lazy {
        command.arg("-z");
    }
    let output = command
        .arg("--")
        .arg(path)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output();
    let message = match output {
        Ok(output) if output.status.success() => return Ok(()),
        Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
        Err(error) => error.to_string(),
    };
    if message.contains("busy") {
        let path = path.to_path_buf();
        return Err(UmountError::Busy { path });
    }
    let message = crate::attach::without_name(&program, message);
    Err(UmountError::Helper { program, message })
}
