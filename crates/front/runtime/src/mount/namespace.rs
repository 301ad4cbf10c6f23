//! Mounts in a new user and mount namespace, where every user may mount.
//!
//! A starter process creates both namespaces and mounts; this process joins them only when that has
//! worked, because a process cannot leave a user namespace, and fusermount does not work in one.
//! The server stays in the old mount namespace, so the new one ends with the program's last
//! process, which unmounts and ends the server. User and group keep their IDs; no other IDs are
//! mapped.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::{env, io};

use nix::sched::{CloneFlags, setns, unshare};
use rustix::process::{getegid, geteuid};

use super::direct;
use crate::failure::Failure;
use crate::processes;

/// Joins namespaces in which the image is mounted on `place`. After an error this process is still
/// in its old namespaces.
pub fn enter(image: &Path, place: &Path, name: &str) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::io("starting the server of the mount", &error);
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    let mut starter = processes::task("namespace")
        .arg(image)
        .arg(place)
        .arg(name)
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(failed)?;
    let joined = wait_until_made(&ours).and_then(|()| join(starter.id()));
    // Closing this end makes the starter exit.
    drop(ours);
    let _it_has_no_more_to_say = starter.wait();
    joined
}

/// Waits for the starter's answer: one byte for success, or an error message.
fn wait_until_made(socket: &UnixStream) -> Result<(), Failure> {
    let mut said = String::new();
    let mut first = [0];
    let mut reader = socket;
    match reader.read_exact(&mut first) {
        Ok(()) if first == *b"!" => Ok(()),
        Ok(()) => {
            let _as_far_as_it_goes = reader.take(4 << 10).read_to_string(&mut said);
            Err(Failure::new(said))
        }
        Err(_) => Err(Failure::new(
            "the process that makes the namespaces has ended",
        )),
    }
}

fn join(starter: u32) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::io("entering the namespaces", &error);
    let opened = |kind: &str| File::open(format!("/proc/{starter}/ns/{kind}")).map_err(failed);
    let (user, mounts) = (opened("user")?, opened("mnt")?);
    let here = env::current_dir();
    let directory = File::open(".");
    setns(user, CloneFlags::CLONE_NEWUSER).map_err(|error| failed(error.into()))?;
    setns(mounts, CloneFlags::CLONE_NEWNS).map_err(|error| failed(error.into()))?;
    // Joining changed the working directory to the root.
    let returned = here.and_then(env::set_current_dir);
    if let (Err(_), Ok(directory)) = (returned, directory) {
        let _else_it_is_the_root = rustix::process::fchdir(directory);
    }
    Ok(())
}

/// Runs as the starter: creates the namespaces and the mount. Standard input is the socket.
pub fn make(image: &Path, place: &Path, name: &Path) -> Result<(), Failure> {
    let socket = io::stdin().as_fd().try_clone_to_owned();
    let socket = socket.map_err(|error| Failure::io("taking the socket", &error))?;
    let socket = UnixStream::from(socket);
    match prepare(image, place, name) {
        Ok(()) => {
            let told = processes::tell(&socket);
            told.map_err(|error| Failure::io("telling the first process", &error))?;
            // The starter keeps the namespaces alive until the first process has joined them and
            // closes its end.
            let _until_it_has = (&socket).read(&mut [0]);
            Ok(())
        }
        Err(error) => {
            let _it_may_have_ended =
                io::Write::write_all(&mut &socket, format!("?{error}").as_bytes());
            Err(error)
        }
    }
}

fn prepare(image: &Path, place: &Path, name: &Path) -> Result<(), Failure> {
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    let failed = |error: nix::errno::Errno| Failure::io("making it", &error.into());
    unshare(CloneFlags::CLONE_NEWUSER).map_err(failed)?;
    let mapping = |error: io::Error| Failure::io("mapping the user", &error);
    // The kernel requires this before an unprivileged process may map a group.
    fs::write("/proc/self/setgroups", "deny").map_err(mapping)?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1")).map_err(mapping)?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1")).map_err(mapping)?;
    let connection = direct::open_device()?;
    // Start the server in the old mount namespace.
    let copy = connection.as_fd().try_clone_to_owned();
    let copy = copy.map_err(|error| Failure::io("handing over the connection", &error))?;
    let kind = PathBuf::from("directory");
    let (begin, waits) = UnixStream::pair().map_err(mapping)?;
    let waits = Stdio::from(OwnedFd::from(waits));
    processes::start_server(image, &kind, place, Stdio::from(copy), waits)?;
    unshare(CloneFlags::CLONE_NEWNS).map_err(failed)?;
    direct::attach_to(&connection, place, &name.to_string_lossy())?;
    // Tell the server only now: reading from the connection fails before it is mounted.
    let told = processes::tell(&begin);
    told.map_err(|error| Failure::io("telling the server", &error))
}
