//! Starts the runtime's processes.
//!
//! The process that the user started becomes the program, so signals, terminal and exit status are
//! the program's, and it must not have unexpected children. It therefore starts a *starter*, which
//! starts the *server* and exits, so that process 1 adopts the server. The server holds the FUSE
//! connection and starts the *cleaner*, which waits for the server to end for whatever reason and
//! removes the leftovers.
//!
//! To avoid `unsafe`, a new process is this program executed again instead of a fork. Its
//! descriptors are passed as standard descriptors.

use std::env;
use std::ffi::OsStr;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::failure::Failure;

/// This program, even if its file was deleted.
const OWN: &str = "/proc/self/exe";
/// Variable that tells a process started by the runtime its role. The program never sees it.
pub const ROLE: &str = "FORERUN_RUNTIME_ROLE";
const NAME: &str = "forerun-runtime";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// mount(2) in this process; needs root.
    Direct,
    /// A user and mount namespace in which the program runs.
    Namespace,
    /// The setuid program fusermount3 or fusermount.
    Fusermount,
}

impl Way {
    pub const ALL: [(&'static str, Self); 3] = [
        ("direct", Self::Direct),
        ("namespace", Self::Namespace),
        ("fusermount", Self::Fusermount),
    ];

    /// Returns the name used in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Direct => "mount(2)",
            Self::Namespace => "user namespace",
            Self::Fusermount => "fusermount",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cleanup {
    Directory,
    Mount(Way),
    Tree,
}

impl Cleanup {
    pub const ALL: [(&'static str, Self); 4] = [
        ("directory", Self::Directory),
        ("mount", Self::Mount(Way::Direct)),
        ("fusermount", Self::Mount(Way::Fusermount)),
        ("tree", Self::Tree),
    ];

    /// Returns the name used as a process argument.
    pub fn name(self) -> &'static str {
        let found = Self::ALL.iter().find(|(_, one)| *one == self);
        found.map_or("directory", |(name, _)| name)
    }
}

/// Creates a command that starts this program in a role. Its environment is empty except `PATH`,
/// where the cleaner finds fusermount.
pub fn task(role: &str) -> Command {
    let mut command = Command::new(OWN);
    command.arg0(NAME).env_clear().env(ROLE, role);
    if let Some(path) = env::var_os("PATH") {
        command.env("PATH", path);
    }
    command
}

/// Starts the server of an existing mount. The mount ends when the last copy of the other end of
/// `life` is closed.
pub fn start(
    image: &Path,
    connection: OwnedFd,
    life: UnixStream,
    place: &Path,
    way: Way,
) -> Result<(), Failure> {
    let status = task("start")
        .arg(image)
        .arg(Cleanup::Mount(way).name())
        .arg(place)
        .stdin(Stdio::from(connection))
        .stdout(Stdio::from(OwnedFd::from(life)))
        .stderr(Stdio::null())
        .status();
    done("starting the server of the mount", status)
}

/// Starts a cleaner without a server. It cleans up when the last copy of the other end of `life` is
/// closed.
pub fn start_cleaner(life: UnixStream, place: &Path) -> Result<(), Failure> {
    let started = cleaner(
        Stdio::from(OwnedFd::from(life)),
        Cleanup::Tree.name(),
        place,
    );
    started.map(|_| ())
}

pub fn done(doing: &str, status: std::io::Result<std::process::ExitStatus>) -> Result<(), Failure> {
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::new(format!("{doing}: {status}"))),
        Err(error) => Err(Failure::io(doing, &error)),
    }
}

/// Starts the server, as the starter. `connection` and `socket` are passed to the server. A mount
/// that other processes see ends at end of file on the socket. If a mount namespace keeps the
/// mount, the socket instead delivers a byte once the mount exists.
pub fn start_server(
    image: &Path,
    kind: &Path,
    place: &Path,
    connection: Stdio,
    socket: Stdio,
) -> Result<(), Failure> {
    leave_job()?;
    let started = task("serve")
        .arg(image)
        .args([kind, place])
        .current_dir("/")
        .stdin(connection)
        .stdout(socket)
        .stderr(Stdio::null())
        .spawn();
    started
        .map(|_| ())
        .map_err(|error| Failure::io("starting the server", &error))
}

pub fn cleaner(until: Stdio, kind: impl AsRef<OsStr>, place: &Path) -> Result<(), Failure> {
    let started = task("clean")
        .arg(kind)
        .arg(place)
        .current_dir("/")
        .stdin(until)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    started
        .map(|_| ())
        .map_err(|error| Failure::io("starting the cleaner", &error))
}

/// Leaves the program's process group, so that Ctrl-C reaches only the program. Stays in its
/// session, so that the kernel schedules the server with it (autogroup).
pub fn leave_job() -> Result<(), Failure> {
    match rustix::process::setpgid(None, None) {
        Ok(()) => Ok(()),
        Err(error) => Err(Failure::io("leaving the process group", &error.into())),
    }
}

pub fn tell(mut socket: &UnixStream) -> std::io::Result<()> {
    socket.write_all(b"!")
}
