//! The user namespace of a run, and the users and groups that it has.
//!
//! An ordinary user is root there, and there is no one else. Root is root, and all others are themselves: the command
//! can change owners and become other users. The kernel takes a map of more than one user from a process outside of
//! the namespace only, so root starts one for that. Where that one may not write the map either, as in a container
//! without the rights of root, root is alone in the namespace too.

use std::env;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::process::{Child, Command, ExitCode, Stdio};

use forerun_fuse::Channel;
use nix::sched::{CloneFlags, unshare};
use rustix::process::{getegid, geteuid};

use crate::error::Result;
use crate::mount::program;

use super::{failed, namespace_failure};

/// Names the parent to the process that writes its maps. A variable left over from elsewhere names another one.
const WRITER: &str = "FORERUN_RUN_MAPS";
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
        let process = Command::new(program())
            .arg0_forerun()
            .env(WRITER, std::process::id().to_string())
            .stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs)))
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

/// Runs this process as the writer, if it is one.
pub fn run_map_writer() -> Option<ExitCode> {
    let parent: u32 = env::var(WRITER).ok()?.parse().ok()?;
    let stdin = io::stdin();
    let peer = rustix::net::sockopt::socket_peercred(&stdin).ok()?;
    let is_parent = u32::try_from(peer.pid.as_raw_nonzero().get()).is_ok_and(|pid| pid == parent);
    if !is_parent {
        return None;
    }
    let channel = stdin.as_fd().try_clone_to_owned().map(Channel::from);
    let asked = channel.and_then(|channel| channel.receive());
    let written = match asked {
        Ok(Some(_)) => MAPS.into_iter().try_for_each(|map| copy(map, parent)),
        // The parent has ended.
        Ok(None) | Err(_) => return Some(ExitCode::FAILURE),
    };
    Some(match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    })
}

/// Gives a process the users or groups that this one has, under the same numbers.
fn copy(map: &str, process: u32) -> io::Result<()> {
    let own = fs::read_to_string(format!("/proc/self/{map}"))?;
    fs::write(format!("/proc/{process}/{map}"), same(&own))
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

/// Names this program in the list of processes.
pub trait Arg0 {
    fn arg0_forerun(&mut self) -> &mut Self;
}

impl Arg0 for Command {
    fn arg0_forerun(&mut self) -> &mut Self {
        use std::os::unix::process::CommandExt;
        // The name of a link may stand for another program.
        self.arg0("forerun")
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
