//! Selects where a mount is made, and by which process and mount namespace.

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

pub enum Place {
    Here(Mountpoint),
    Outside(Outside),
    /// The caller has mounted already, and left the connection open.
    Connected(OwnedFd),
}

pub fn place(dir: &Path, options: &MountOptions) -> Result<Place, MountError> {
    if let Some(connection) = descriptor::connection(dir)? {
        return Ok(Place::Connected(connection));
    }
    let prepared = match (&options.outside, &options.namespace) {
        // The helper checks the directory itself, in its namespace.
        (Some(outside), Some(_)) => return Ok(Place::Outside(outside.clone())),
        (_, namespace) => prepare_within(dir, namespace.as_ref())?,
    };
    Ok(match &options.outside {
        Some(outside) => Place::Outside(outside.clone()),
        None if options.auto_unmount => return Err(MountError::Watchdog),
        None => Place::Here(prepared),
    })
}

/// Checks that `dir` can be mounted on, and removes a dead mount of forerun's from it. For servers
/// that will be sandboxed when they mount.
pub fn prepare_mountpoint(dir: &Path, options: &MountOptions) -> Result<(), MountError> {
    prepare_within(dir, options.namespace.as_ref()).map(drop)
}

/// Opens a directory to mount on in a mount namespace. Removes a dead mount of forerun's that is
/// there.
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

pub fn attach_here(
    place: Mountpoint,
    options: &MountOptions,
    writable: bool,
) -> Result<(Unmounter, OwnedFd), MountError> {
    let source = options.fsname.clone().unwrap_or_else(|| "forerun".into());
    let made = within(options.namespace.as_ref(), || {
        let attached = attach(&place, &OsString::from(source), options, writable)?;
        // An open descriptor would keep the filesystem below busy after the mount has ended.
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
