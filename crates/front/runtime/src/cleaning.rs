//! Removes what a run leaves behind: its mount, its directory, its extracted files.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::mount::UnmountFlags;

use crate::extract::open_up;
use crate::failure::Failure;
use crate::helper::find_fusermount;
use crate::processes::{Cleanup, Way, done};

/// Waits until standard input ends, then cleans up.
pub fn clean(kind: &Path, place: &Path) -> Result<(), Failure> {
    // The cleaner of an extraction is started by the first process itself, so it must leave that
    // session.
    let _leader_already = rustix::process::setsid();
    wait_for_end(std::io::stdin());
    let kind = Cleanup::ALL
        .iter()
        .find(|(name, _)| kind == Path::new(name));
    match kind.map(|(_, kind)| *kind) {
        Some(Cleanup::Mount(way)) => remove_mount(way, place),
        Some(Cleanup::Tree) => remove_tree(place),
        Some(Cleanup::Directory) | None => remove_directory(place),
    }
}

/// Unmounts the runtime's mount on `place` and removes that directory. Only this user can enter or
/// replace the directory, so its path identifies the mount.
pub fn remove_mount(way: Way, place: &Path) -> Result<(), Failure> {
    if fs::remove_dir(place).is_ok() {
        return Ok(());
    }
    match way {
        Way::Fusermount => {
            let program = find_fusermount()?;
            let status = Command::new(program)
                .args(["-u", "-z", "-q", "--"])
                .arg(place)
                .stdin(Stdio::null())
                .status();
            done("unmounting", status)?;
        }
        Way::Direct | Way::Namespace => {
            let flags = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
            let unmounted = rustix::mount::unmount(place, flags);
            unmounted.map_err(|error| Failure::io("unmounting", &error.into()))?;
        }
    }
    remove_directory(place)
}

fn remove_directory(place: &Path) -> Result<(), Failure> {
    fs::remove_dir(place).map_err(|error| Failure::io("removing the directory", &error))
}

pub fn remove_tree(place: &Path) -> Result<(), Failure> {
    open_up(place);
    match fs::remove_dir_all(place) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            let what = format!("removing {}", place.display());
            Err(Failure::io(&what, &error))
        }
        _ => Ok(()),
    }
}

/// Reads to end of file, discarding the bytes.
pub fn wait_for_end(mut file: impl Read) {
    let mut bytes = [0; 512];
    loop {
        match file.read(&mut bytes) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}
