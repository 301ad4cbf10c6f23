//! The process beside a server in its sandbox, which mounts, unmounts and starts a successor for it.
//!
//! It is this program with the same arguments, so that the server need not tell it what to mount where.
//! It opens no image, and ends when its server has ended.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::{env, io};

use forerun_fuse::{MountOptions, Outside, serve_outside};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::{MountArgs, daemon, failed, fsname, handover};
use crate::error::Result;
use crate::exit::Exit;

/// Says to the process whose it is. A variable left over from elsewhere names another.
const SERVER: &str = "FORERUN_MOUNT_SERVER";

/// Whether this is the process beside a server. The socket on standard input tells, also where the
/// server has ended already: this process must not take itself for a command of the user then.
pub fn is_it() -> bool {
    let peer = rustix::net::sockopt::socket_peercred(io::stdin());
    let peer = peer.map(|peer| peer.pid.as_raw_nonzero().to_string());
    peer.is_ok_and(|peer| env::var(SERVER).is_ok_and(|server| server == peer))
}

/// Starts it.
pub fn start() -> Result<Outside> {
    let starting = |error: io::Error| failed("starting the process that mounts", &error);
    let pair = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    );
    let (ours, theirs) = pair.map_err(|error| starting(error.into()))?;
    let process = handover::without_predecessor(&mut daemon::command(daemon::program()))
        .env(SERVER, std::process::id().to_string())
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(starting)?;
    Ok(Outside::new(ours, process))
}

/// Answers the server until that ends.
pub fn run(args: &MountArgs, options: &mut MountOptions) -> Result {
    if options.fsname.is_none() {
        options.fsname = Some(fsname(&args.image));
    }
    let serving = |error: io::Error| failed("mounting for another process", &error);
    // They are meant for the server, and reach all of its group.
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        let ignored = signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)));
        ignored.map_err(serving)?;
    }
    let socket = io::stdin().as_fd().try_clone_to_owned().map_err(serving)?;
    let dir = std::path::absolute(&args.dir).map_err(serving)?;
    // Relative names of a successor's command line begin here; this process keeps nothing busy.
    let directory = env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    env::set_current_dir("/").map_err(serving)?;
    let start: &mut dyn FnMut(&str, [OwnedFd; 3]) -> io::Result<Child> = &mut |server, files| {
        let [stdin, stdout, stderr] = files.map(Stdio::from);
        handover::successor(server, daemon::newest_program())
            .env_remove(SERVER)
            .current_dir(&directory)
            .stdin(stdin)
            .stdout(stdout)
            .stderr(stderr)
            .spawn()
    };
    serve_outside(&socket, &dir, options, start).map_err(serving)?;
    Ok(Exit::Ok)
}
