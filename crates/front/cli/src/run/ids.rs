//! The user namespaces of a run, and their users and groups.
//!
//! The outer namespace contains the serving process and process 1, which makes the mounts. The
//! inner one contains the command, with a mount namespace that it owns. Mounts there were inherited
//! from a mount namespace with more rights, so the kernel locks them: the command can neither
//! unmount them nor make them writable. Both namespaces have the same users.
//!
//! An ordinary user is root in the namespaces, and there are no other users. Root is root, and all
//! other users are themselves: the command can change owners and become other users. The kernel
//! accepts a map of more than one user only from a process outside the namespace, so root starts
//! one. If that process may not write the map either, as in a container without root's rights, root
//! is the only user in the namespace too.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};

use forerun_fuse::Channel;
use nix::sched::{CloneFlags, unshare};
use rustix::fs::{Mode, OFlags, open, openat};
use rustix::process::{getegid, geteuid};

use crate::error::Result;
use crate::mount::program;
use crate::role::{self, Role};

use super::{failed, namespace_failure};

const MAPS: [&str; 2] = ["uid_map", "gid_map"];

/// A process that stays outside the namespaces to write the maps.
pub struct MapWriter {
    process: Child,
    channel: Channel,
}

impl MapWriter {
    /// Starts the process if this user is root.
    pub fn start() -> Result<Option<Self>> {
        if !geteuid().is_root() {
            return Ok(None);
        }
        let starting = |error: io::Error| failed("starting the process that maps users", &error);
        let (channel, theirs) = Channel::pair().map_err(starting)?;
        let mut command = Command::new(program());
        role::assign(&mut command, Role::MapWriter, "maps users");
        let process = command
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(starting)?;
        Ok(Some(Self { process, channel }))
    }

    /// Requests the maps of this process. Returns whether they were written.
    fn write(mut self) -> io::Result<bool> {
        // The writer may have ended, for the same reason for which it did not write the map.
        let _asked = self.channel.send(b"unshared", &[]);
        drop(self.channel);
        Ok(self.process.wait()?.success())
    }
}

pub fn run_map_writer() -> ExitCode {
    match write_maps() {
        Ok(()) => ExitCode::SUCCESS,
        // The parent reports what it could not map.
        Err(_) => ExitCode::FAILURE,
    }
}

fn write_maps() -> io::Result<()> {
    let stdin = io::stdin();
    let parent = rustix::net::sockopt::socket_peercred(&stdin)?.pid;
    let channel = Channel::from(stdin.as_fd().try_clone_to_owned()?);
    // Without a request, the parent has ended.
    channel.receive()?.ok_or(io::ErrorKind::UnexpectedEof)?;
    OwnMaps::read()?.give(&in_proc(&parent.as_raw_nonzero().to_string())?)
}

/// The users and groups of this process, mapped to the same numbers.
pub struct OwnMaps(Vec<(&'static str, String)>);

impl OwnMaps {
    pub fn read() -> io::Result<Self> {
        let maps = MAPS.into_iter();
        let read = |map| Ok((map, same(&fs::read_to_string(format!("/proc/self/{map}"))?)));
        Ok(Self(maps.map(read).collect::<io::Result<_>>()?))
    }

    /// Writes the maps of the process with this directory in `/proc`, which has none yet.
    pub fn give(&self, process: &impl AsFd) -> io::Result<()> {
        for (map, numbers) in &self.0 {
            let file = openat(
                process,
                *map,
                OFlags::WRONLY | OFlags::CLOEXEC,
                Mode::empty(),
            )?;
            // The kernel accepts a map only in a single write.
            rustix::io::write(file, numbers.as_bytes())?;
        }
        Ok(())
    }
}

/// Opens the directory of a process in `/proc`.
pub fn in_proc(process: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(open(
        Path::new("/proc").join(process),
        flags,
        Mode::empty(),
    )?)
}

/// Returns whether root of this user namespace is the system's root, who owns system settings.
pub fn is_root_of_system() -> io::Result<bool> {
    let map = fs::read_to_string("/proc/self/uid_map")?;
    let mut owners = map
        .lines()
        .filter_map(|line| line.split_whitespace().nth(1));
    Ok(owners.any(|first| first == "0"))
}

/// Returns whether this user namespace has a single user, so that no program can become another
/// one.
pub fn is_one_user() -> io::Result<bool> {
    let map = fs::read_to_string("/proc/self/uid_map")?;
    Ok(map.split_whitespace().skip(2).eq(["1"]))
}

/// Returns the identity map of the inside numbers of `map`.
fn same(map: &str) -> String {
    let lines = map.lines().filter_map(|line| {
        let mut numbers = line.split_whitespace();
        let (first, _, count) = (numbers.next()?, numbers.next()?, numbers.next()?);
        Some(format!("{first} {first} {count}\n"))
    });
    lines.collect()
}

pub struct Namespace;

impl Namespace {
    /// Moves this process, which has a single thread, to new namespaces.
    pub fn enter(writer: Option<MapWriter>) -> Result<()> {
        let (user, group) = (geteuid().as_raw(), getegid().as_raw());
        unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)
            .map_err(|error| namespace_failure("making a user namespace", &error.into()))?;
        let mapping = |error: io::Error| namespace_failure("mapping users", &error);
        if let Some(writer) = writer
            && writer.write().map_err(mapping)?
        {
            return Ok(());
        }
        // The kernel requires this before an unprivileged group mapping, because members could gain
        // access by leaving a group.
        let denied = fs::write("/proc/self/setgroups", "deny");
        denied.map_err(mapping)?;
        fs::write("/proc/self/uid_map", format!("0 {user} 1")).map_err(mapping)?;
        fs::write("/proc/self/gid_map", format!("0 {group} 1")).map_err(mapping)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_onto_itself() {
        for (map, expected) in [
            ("         0          0 4294967295\n", "0 0 4294967295\n"),
            ("0 100000 65536\n70000 5 1\n", "0 0 65536\n70000 70000 1\n"),
            ("", ""),
        ] {
            assert_eq!(same(map), expected);
        }
    }
}
