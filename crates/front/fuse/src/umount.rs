//! Unmounts mounts of other processes, also after their server has died.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use forerun_sys::mount_table::MountEntry;
use forerun_sys::mountpoint::{Sight, find_mount, mount_at};
use rustix::io::Errno;

use crate::abort::abort;
use crate::helper::{find_helper, without_name};
use crate::liveness::{Liveness, is_fuse, liveness_of};
use crate::{FSTYPE, UmountError, written};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UmountOptions {
    /// Detach now; the mount ends with its last user.
    pub lazy: bool,
    /// Also unmount mounts that are not forerun's, and mounts below this one. Fails all requests of
    /// a FUSE mount that is in use.
    pub force: bool,
}

/// The result of [`Unmounter::unmount`](crate::Unmounter::unmount).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmounted {
    Done,
    /// Detached, but files are still open. They are served until they are closed; only then does
    /// [`Mount::wait`](crate::Mount::wait) return.
    StillInUse,
}

/// Unmounts the mount on `dir`. A mount whose server has died is unmounted even if it is in use,
/// because nothing can be read from it any more.
///
/// The last changes of a writable mount are written first. If that fails, the mount stays, so that
/// nothing is lost; with `lazy` or `force` it is unmounted anyway, and the error says that changes
/// are lost.
///
/// # Errors
/// [`UmountError`]: nothing or something else is mounted there, it is in use, another mount is
/// below it, or it is not permitted.
pub fn umount(dir: &Path, options: UmountOptions) -> Result<(), UmountError> {
    let path = dir.to_path_buf();
    let entry = match mount_at(dir) {
        Ok(Some(entry)) => entry,
        Ok(None) => return Err(UmountError::NotMounted { path }),
        Err(source) => return Err(UmountError::Path { path, source }),
    };
    if entry.fstype != FSTYPE && !options.force {
        return Err(UmountError::NotOurs {
            path: entry.mount_point,
            fstype: entry.fstype,
        });
    }
    let changes = is_fuse(&entry) && !entry.is_read_only();
    let gives_up = options.lazy || options.force;
    let written = if !changes {
        Ok(())
    } else {
        match liveness_of(&entry) {
            Liveness::Alive => written::sync(&entry.mount_point, gives_up),
            // The server may be slow or stopped. If the mount is also in use, a later error says
            // that no process serves it.
            Liveness::Silent if !options.force => {
                let synced = written::sync(&entry.mount_point, true);
                synced.or_else(|error| match error.kind() {
                    io::ErrorKind::TimedOut => Ok(()),
                    _ => Err(error),
                })
            }
            Liveness::Silent | Liveness::Dead => Ok(()),
        }
    };
    if let Err(source) = written {
        if !gives_up {
            return Err(UmountError::NotWritten { path, source });
        }
        take_down(&entry, options)?;
        if !options.lazy {
            // The server tries to write once more at its end, and then releases the volume.
            written::wait(&entry);
        }
        return Err(UmountError::ChangesLost { path, source });
    }
    let lazily = UmountOptions {
        lazy: true,
        ..options
    };
    if options.force && is_fuse(&entry) && liveness_of(&entry) == Liveness::Silent {
        fail_requests(&entry);
    }
    match take_down(&entry, options) {
        Err(UmountError::Busy { path }) if is_fuse(&entry) && !options.lazy => {
            match liveness_of(&entry) {
                Liveness::Dead => take_down(&entry, lazily),
                liveness if options.force => {
                    fail_requests(&entry);
                    take_down(&entry, lazily)?;
                    match liveness {
                        _ if !changes => Ok(()),
                        Liveness::Silent => {
                            let source = io::ErrorKind::TimedOut.into();
                            Err(UmountError::ChangesLost { path, source })
                        }
                        _ => {
                            written::wait(&entry);
                            Ok(())
                        }
                    }
                }
                Liveness::Silent => Err(UmountError::Unserved { path }),
                Liveness::Alive => Err(UmountError::Busy { path }),
            }
        }
        Ok(()) if changes && !options.lazy => {
            written::wait(&entry);
            Ok(())
        }
        result => result,
    }
}

fn fail_requests(entry: &MountEntry) {
    if let Err(error) = abort(entry) {
        tracing::warn!("what waits for its server still waits: {error}");
    }
}

/// Unmounts exactly this mount, even if it was moved, but not if another mount covers it. Without
/// `force`, keeps a mount with other mounts below it.
pub fn take_down(mount: &MountEntry, options: UmountOptions) -> Result<(), UmountError> {
    let path = mount.mount_point.clone();
    let seen = match find_mount(mount) {
        Ok(Sight::Visible(seen)) => seen,
        Ok(Sight::Covered) => return Err(UmountError::Covered { path }),
        Ok(Sight::Gone) => return Err(UmountError::NotMounted { path }),
        Err(source) => return Err(UmountError::Path { path, source }),
    };
    let path = seen.path().to_path_buf();
    let holds = |inner: &Path| UmountError::HoldsMount {
        path: path.clone(),
        inner: inner.to_path_buf(),
    };
    let inner = seen.inner().filter(|_| !options.force);
    if let Some(inner) = inner.filter(|_| options.lazy) {
        return Err(holds(inner));
    }
    match seen.unmount(options.lazy) {
        Ok(()) => Ok(()),
        Err(Errno::BUSY) => Err(match inner {
            Some(inner) => holds(inner),
            None => UmountError::Busy { path },
        }),
        Err(Errno::PERM) => by_helper(&path, options.lazy),
        Err(error) => Err(UmountError::System {
            path,
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
    let message = without_name(&program, message);
    Err(UmountError::Helper { program, message })
}
