//! The directory of a mount that is to be made, and the process and mount namespace that makes it.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use forerun_sys::mountpoint::Mountpoint;

use crate::attach::{Attached, attach};
use crate::mountpoint::prepare;
use crate::namespace::{forget, within};
use crate::unmounter::Unmounter;
use crate::{MountError, MountNamespace, MountOptions, Outside, descriptor};

/// The place of a mount that is to be made.
pub enum Place {
    Here(Mountpoint),
    Outside(Outside),
    /// The caller has mounted, and has left the connection open.
    Connected(OwnedFd),
}

/// Checks a directory to mount on.
pub fn place(dir: &Path, options: &MountOptions) -> Result<Place, MountError> {
    if let Some(connection) = descriptor::connection(dir)? {
        return Ok(Place::Connected(connection));
    }
    let prepared = match (&options.outside, &options.namespace) {
        // It checks by itself, where the directory is to be seen.
        (Some(outside), Some(_)) => return Ok(Place::Outside(outside.clone())),
        (_, namespace) => prepare_within(dir, namespace.as_ref())?,
    };
    Ok(match &options.outside {
        Some(outside) => Place::Outside(outside.clone()),
        None if options.auto_unmount => return Err(MountError::Watchdog),
        None => Place::Here(prepared),
    })
}

/// Makes sure that `dir` can be mounted on, and removes a dead mount of ours from it. For a server that
/// will be confined when it mounts.
///
/// # Errors
/// As [`mount`](crate::mount()).
pub fn prepare_mountpoint(dir: &Path, options: &MountOptions) -> Result<(), MountError> {
    prepare_within(dir, options.namespace.as_ref()).map(drop)
}

/// Opens a directory to mount on in this mount namespace. Removes a dead mount of forerun's that is there.
pub fn prepare_within(
    dir: &Path,
    namespace: Option<&MountNamespace>,
) -> Result<Mountpoint, MountError> {
    let Some(namespace) = namespace else {
        return prepare(dir);
    };
    // Joining the namespace changes the working directory.
    let dir = std::path::absolute(dir).map_err(|source| {
        let path = dir.to_path_buf();
        MountError::Mountpoint { path, source }
    })?;
    namespace
        .run(|| prepare(&dir))
        .map_err(MountError::Namespace)?
}

/// Mounts in this process.
pub fn attach_here(
    place: Mountpoint,
    options: &MountOptions,
    writable: bool,
) -> Result<(Unmounter, OwnedFd), MountError> {
    let source = options.fsname.clone().unwrap_or_else(|| "forerun".into());
    let made = within(options.namespace.as_ref(), || {
        let attached = attach(&place, &OsString::from(source), options, writable)?;
        // A descriptor would keep the filesystem below busy after the mount has ended.
        drop(place);
        let Attached { connection, mount } = attached;
        let unmounter = Unmounter::new(mount, &connection, options)?;
        Ok::<_, MountError>((unmounter, connection))
    });
    let (unmounter, connection) = made.map_err(MountError::Namespace)??;
    if options.namespace.is_some() {
        forget(unmounter.device()).map_err(MountError::MountInfo)?;
    }
    Ok((unmounter, connection))
}

/// Waits until a new mount answers a request.
pub fn answers(path: &Path, options: &MountOptions) -> io::Result<()> {
    within(options.namespace.as_ref(), || rustix::fs::statvfs(path))??;
    Ok(())
}
