//! The user namespaces of a run, and the users and groups that they have.
//!
//! There are two. The outer one has the process that serves the image and process 1, which makes the mounts. The command
//! lives in the inner one, with a mount namespace that it owns. What is mounted there was inherited from a mount
//! namespace with more rights, so the kernel locks it: the command can neither unmount it nor make it writable. Both
//! have the same users.
//!
//! An ordinary user is root there, and there is no one else. Root is root, and all others are themselves: the command
//! can change owners and become other users. The kernel takes a map of more than one user from a process outside of
//! the namespace only, so root starts one for that. Where that one may not write the map either, as in a container
//! without the rights of root, root is alone in the namespace too.

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

/// A process that stays outside, to write the maps.
pub struct MapWriter {
    process: Child,
    channel: Channel,
}

impl MapWriter {
    /// Starts it, where this process is root.
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

    /// Has the maps of this process written. Returns whether they are.
    fn write(mut self) -> io::Result<bool> {
        // It may have ended, with the reason for which the map is not written.
        let _asked = self.channel.send(b"unshared", &[]);
        drop(self.channel);
        Ok(self.process.wait()?.success())
    }
}

/// Runs this process as the writer.
pub fn run_map_writer() -> ExitCode {
    match write_maps() {
        Ok(()) => ExitCode::SUCCESS,
        // The parent tells what it could not map.
        Err(_) => ExitCode::FAILURE,
    }
}

fn write_maps() -> io::Result<()> {
    let stdin = io::stdin();
    let parent = rustix::net::sockopt::socket_peercred(&stdin)?.pid;
    let channel = Channel::from(stdin.as_fd().try_clone_to_owned()?);
    // Without a question the parent has ended.
    channel.receive()?.ok_or(io::ErrorKind::UnexpectedEof)?;
    OwnMaps::read()?.give(&in_proc(&parent.as_raw_nonzero().to_string())?)
}

/// The users and groups of this process, under the same numbers.
pub struct OwnMaps(Vec<(&'static str, String)>);

impl OwnMaps {
    pub fn read() -> io::Result<Self> {
        let maps = MAPS.into_iter();
        let read = |map| Ok((map, same(&fs::read_to_string(format!("/proc/self/{map}"))?)));
        Ok(Self(maps.map(read).collect::<io::Result<_>>()?))
    }

    /// Gives them to the process with this directory of `/proc`, which has none.
    pub fn give(&self, process: &impl AsFd) -> io::Result<()> {
        for (map, numbers) in &self.0 {
            let file = openat(
                process,
                *map,
                OFlags::WRONLY | OFlags::CLOEXEC,
                Mode::empty(),
            )?;
            // The kernel takes a map in one piece.
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

/// Returns whether root of this user namespace is the system's, which owns its settings.
pub fn is_root_of_system() -> io::Result<bool> {
    let map = fs::read_to_string("/proc/self/uid_map")?;
    let mut owners = map
        .lines()
        .filter_map(|line| line.split_whitespace().nth(1));
    Ok(owners.any(|first| first == "0"))
}

/// Returns whether this user namespace has one user only, so that no program can become another one.
pub fn is_one_user() -> io::Result<bool> {
    let map = fs::read_to_string("/proc/self/uid_map")?;
    Ok(map.split_whitespace().skip(2).eq(["1"]))
}

/// Returns a map of the numbers that a map has onto themselves.
fn same(map: &str) -> String {
    let lines = map.lines().filter_map(|line| {
        let mut numbers = line.split_whitespace();
        let (first, _, count) = (numbers.next()?, numbers.next()?, numbers.next()?);
        Some(format!("{first} {first} {count}\n"))
    });
    lines.collect()
}

/// The user and mount namespace of this process.
pub struct Namespace;

impl Namespace {
    /// Moves this process, which has one thread, to namespaces of its own.
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
        // The kernel wants it before a group is mapped without privilege: members could get around permissions by leaving.
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
