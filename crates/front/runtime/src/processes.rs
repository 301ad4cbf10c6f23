//! Starts the processes of the runtime, and says what they are for.
//!
//! The process that the user started becomes the program. So signals, the terminal and the exit status are those of
//! the program, and it must have no children that it does not know of. The first process therefore starts a *starter*,
//! which starts the *server* and ends, so that the server belongs to process 1. The server holds the connection of the
//! mount, and starts the *cleaner*, which waits for the server to end, however it ends, and takes away what is left.
//!
//! A copy of a process without `unsafe` is this program started anew. What it gets is on its standard descriptors.

use std::env;
use std::ffi::OsStr;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::failure::Failure;

/// This program, also where its file was removed.
const OWN: &str = "/proc/self/exe";
/// Names the task of a process that the runtime has started. The program never sees it.
pub const ROLE: &str = "FORERUN_RUNTIME_ROLE";
/// The name of the processes in lists.
const NAME: &str = "forerun-runtime";

/// A way to mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// mount(2) where this process is. Takes root.
    Direct,
    /// A user namespace and a mount namespace that the program runs in.
    Namespace,
    /// The program fusermount3 or fusermount, which has the right to.
    Fusermount,
}

impl Way {
    pub const ALL: [(&'static str, Self); 3] = [
        ("direct", Self::Direct),
        ("namespace", Self::Namespace),
        ("fusermount", Self::Fusermount),
    ];

    /// Returns the name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Direct => "mount(2)",
            Self::Namespace => "user namespace",
            Self::Fusermount => "fusermount",
        }
    }
}

/// The task of a cleaner when the program has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cleanup {
    /// Remove an empty directory.
    Directory,
    /// Unmount, then remove the directory.
    Mount(Way),
    /// Remove a directory with what is in it.
    Tree,
}

impl Cleanup {
    pub const ALL: [(&'static str, Self); 4] = [
        ("directory", Self::Directory),
        ("mount", Self::Mount(Way::Direct)),
        ("fusermount", Self::Mount(Way::Fusermount)),
        ("tree", Self::Tree),
    ];

    /// Returns the name among the arguments of a process.
    pub fn name(self) -> &'static str {
        let found = Self::ALL.iter().find(|(_, one)| *one == self);
        found.map_or("directory", |(name, _)| name)
    }
}

/// Creates the command that starts this program with a task and nothing of the user's environment but `PATH`, where
/// the cleaner finds fusermount.
pub fn task(role: &str) -> Command {
    let mut command = Command::new(OWN);
    command.arg0(NAME).env_clear().env(ROLE, role);
    if let Some(path) = env::var_os("PATH") {
        command.env("PATH", path);
    }
    command
}

/// Starts the server of a mount that is made. The mount ends when the last copy of
/// the other end of `life` is closed.
///
/// # Errors
/// The errors of starting processes.
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

/// Starts a cleaner alone. It cleans up when the last copy of the other end of `life` is closed.
///
/// # Errors
/// The errors of starting processes.
pub fn start_cleaner(life: UnixStream, place: &Path) -> Result<(), Failure> {
    let started = cleaner(
        Stdio::from(OwnedFd::from(life)),
        Cleanup::Tree.name(),
        place,
    );
    started.map(|_| ())
}

/// Turns the status of a process into a result.
pub fn done(doing: &str, status: std::io::Result<std::process::ExitStatus>) -> Result<(), Failure> {
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::new(format!("{doing}: {status}"))),
        Err(error) => Err(Failure::io(doing, &error)),
    }
}

/// Starts the server, as the starter. `connection` and `socket` are what the server gets. The end of the socket is the end
/// of a mount that others see. Where the namespace of the program's processes keeps the mount, a byte says that it is
/// made.
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

/// Starts a cleaner that waits for the end of `until`.
///
/// # Errors
/// The errors of starting processes.
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

/// Leaves the program's job: Ctrl-C is for the program alone. The session stays that of the program, for which
/// the kernel then keeps the server on its CPU (autogroup).
pub fn leave_job() -> Result<(), Failure> {
    match rustix::process::setpgid(None, None) {
        Ok(()) => Ok(()),
        Err(error) => Err(Failure::io("leaving the process group", &error.into())),
    }
}

/// Tells the other end of a socket one byte.
pub fn tell(mut socket: &UnixStream) -> std::io::Result<()> {
    socket.write_all(b"!")
}
