//! The helper process that mounts and unmounts for a sandboxed server.
//!
//! It is this program with the same arguments, so that the server need not tell it what to mount
//! where. It opens no image, and ends with its server, or with the mount if `auto_unmount` is set.

use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::{env, io};

use forerun_fuse::{MountOptions, Outside, serve_outside};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use super::{MountArgs, daemon, failed, fsname};
use crate::error::Result;
use crate::exit::Exit;
use crate::inherited;
use crate::role::{self, Role};

pub fn is_it() -> bool {
    role::is(Role::Mounter)
}

pub fn start(dir: &Path, options: &MountOptions) -> Result<Outside> {
    let starting = |error: io::Error| failed("starting the process that mounts", &error);
    let pair = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    );
    let (ours, theirs) = pair.map_err(|error| starting(error.into()))?;
    let title = format!("mounts for the server of {}", dir.display());
    let words = daemon::namespace_words(options.namespace.as_ref());
    let command = daemon::command(daemon::program(), (Role::Mounter, &title), &words);
    let (mut command, secrets) = command.map_err(starting)?;
    if options.auto_unmount {
        // A signal that kills the server's process group spares the helper.
        command.process_group(0);
    }
    let process = command
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(starting)?;
    drop(secrets);
    Ok(Outside::new(ours, process))
}

/// Serves the server's requests until the server ends.
pub fn run(args: &MountArgs, options: &mut MountOptions) -> Result {
    options.namespace = daemon::named_namespace();
    if options.fsname.is_none() {
        options.fsname = Some(fsname(args));
    }
    let serving = |error: io::Error| failed("mounting for another process", &error);
    // These signals are meant for the server, but reach its whole group.
    for signal in [SIGTERM, SIGINT, SIGHUP, SIGQUIT] {
        let ignored = signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)));
        ignored.map_err(serving)?;
    }
    let socket = io::stdin().as_fd().try_clone_to_owned().map_err(serving)?;
    let dir = std::path::absolute(&args.dir).map_err(serving)?;
    // The helper keeps no directory busy.
    env::set_current_dir("/").map_err(serving)?;
    inherited::close_named();
    serve_outside(&socket, &dir, options).map_err(serving)?;
    Ok(Exit::Ok)
}
