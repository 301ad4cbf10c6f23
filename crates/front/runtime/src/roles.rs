//! The processes that the runtime starts beside the program: copies of itself, each with one task.
//!
//! The process that the user started becomes the program. So signals, the terminal and the exit status are those of
//! the program, and it must have no children that it does not know of. The first process therefore starts a *starter*,
//! which starts the *server* and the *cleaner* and ends, so that these two belong to process 1. The server holds the
//! connection of the mount. The cleaner waits for the server to end, however it ends, and takes away what is left.
//!
//! A copy of a process without `unsafe` is this program started anew. What it gets is on its standard descriptors.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::{env, fs, thread};

use rustix::mount::UnmountFlags;
use rustix::process::{getgid, getuid};

use crate::contents::Contents;
use crate::failure::{FAILED, Failure};
use crate::fuse;
use crate::mount::{Way, find_fusermount, namespace};
use crate::payload::AppImage;

/// This program, also where its file was removed.
const OWN: &str = "/proc/self/exe";
/// Names the task of a process that the runtime has started. The program never sees it.
const ROLE: &str = "FORERUN_RUNTIME_ROLE";
/// The name of the processes in lists.
const NAME: &str = "forerun-runtime";

/// What is to be done when the program has ended.
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
    const ALL: [(&'static str, Self); 4] = [
        ("directory", Self::Directory),
        ("mount", Self::Mount(Way::Direct)),
        ("fusermount", Self::Mount(Way::Fusermount)),
        ("tree", Self::Tree),
    ];

    fn name(self) -> &'static str {
        let found = Self::ALL.iter().find(|(_, one)| *one == self);
        found.map_or("directory", |(name, _)| name)
    }
}

/// Runs this process's task, if the runtime has started it with one.
pub fn run_role() -> Option<ExitCode> {
    let role = env::var(ROLE).ok()?;
    let arguments: Vec<PathBuf> = env::args_os().skip(1).map(PathBuf::from).collect();
    let done = match (role.as_str(), arguments.as_slice()) {
        ("start", [image, kind, place]) => {
            start_both(image, kind, place, Stdio::inherit(), Stdio::inherit())
        }
        ("namespace", [image, place, name]) => namespace::make(image, place, name),
        ("serve", [image, life]) => serve(image, life == Path::new("life")),
        ("clean", [kind, place]) => clean(kind, place),
        _ => Err(Failure::new("started with a task that it does not know")),
    };
    Some(match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(FAILED),
    })
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

/// Starts server and cleaner of a mount that is made, and waits until both run. The mount ends when the last copy of
/// the other end of `life` is closed.
///
/// # Errors
/// Those of starting processes.
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
/// Those of starting processes.
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

/// Starts server and cleaner, as the starter. `connection` and `socket` are what the server gets. The end of the socket
/// is the end of a mount that others see. Where the namespace of the program's processes keeps the mount, a byte says
/// that it is made.
pub fn start_both(
    image: &Path,
    kind: &Path,
    place: &Path,
    connection: Stdio,
    socket: Stdio,
) -> Result<(), Failure> {
    leave_terminal()?;
    let failed = |error| Failure::io("starting the server", &error);
    let (reader, writer): (PipeReader, PipeWriter) = std::io::pipe().map_err(failed)?;
    let has_life = kind != Path::new(Cleanup::Directory.name());
    // Its error output is what tells the cleaner that it has ended.
    task("serve")
        .arg(image)
        .arg(if has_life { "life" } else { "mount" })
        .current_dir("/")
        .stdin(connection)
        .stdout(socket)
        .stderr(Stdio::from(OwnedFd::from(writer)))
        .spawn()
        .map_err(failed)?;
    let reader = Stdio::from(OwnedFd::from(reader));
    cleaner(reader, kind.as_os_str(), place)
}

fn cleaner(until: Stdio, kind: impl AsRef<OsStr>, place: &Path) -> Result<(), Failure> {
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

/// Leaves the terminal and its process group: Ctrl-C is for the program alone.
pub fn leave_terminal() -> Result<(), Failure> {
    match rustix::process::setsid() {
        Ok(_) => Ok(()),
        Err(error) => Err(Failure::io("leaving the terminal", &error.into())),
    }
}

/// Serves the mount on standard input.
fn serve(image: &Path, has_life: bool) -> Result<(), Failure> {
    let (driver, source) = AppImage::open(image)?.payload()?;
    let contents = Contents::new(driver, source);
    let connection = std::io::stdin().as_fd().try_clone_to_owned();
    let connection = connection.map_err(|error| Failure::io("taking the connection", &error))?;
    let socket = std::io::stdout().as_fd().try_clone_to_owned();
    let socket = socket.map_err(|error| Failure::io("taking the socket", &error))?;
    let mut socket = File::from(socket);
    if has_life {
        // Its end is the end of all processes that hold the other end: those of the program.
        thread::spawn(move || {
            wait_for_end(socket);
            std::process::exit(0);
        });
    } else {
        let made = socket.read_exact(&mut [0]);
        made.map_err(|error| Failure::io("waiting for the mount", &error))?;
    }
    fuse::serve(connection, contents, getuid().as_raw(), getgid().as_raw());
    Ok(())
}

/// Reads to the end, ignoring what comes.
fn wait_for_end(mut file: impl Read) {
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

/// Cleans up when standard input ends.
fn clean(kind: &Path, place: &Path) -> Result<(), Failure> {
    // The cleaner of an extraction is started by the first process itself.
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

/// Unmounts a mount that the runtime has made in a directory of its own, and removes the directory. Other users cannot
/// enter that directory, nor put another one in its place, so its path is enough to find the mount.
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

/// Removes an extracted tree, read-only directories included.
pub fn remove_tree(place: &Path) -> Result<(), Failure> {
    crate::extract::open_up(place);
    match fs::remove_dir_all(place) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            let what = format!("removing {}", place.display());
            Err(Failure::io(&what, &error))
        }
        _ => Ok(()),
    }
}

/// Tells the other end of a socket one byte.
pub fn tell(mut socket: &UnixStream) -> std::io::Result<()> {
    socket.write_all(b"!")
}
