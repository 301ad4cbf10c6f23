//! Code of the processes that the runtime starts.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::{env, thread};

use rustix::process::{getgid, getuid};

use crate::cleaning::{clean, wait_for_end};
use crate::contents::Contents;
use crate::failure::{FAILED, Failure};
use crate::fuse;
use crate::mount::namespace;
use crate::payload::AppImage;
use crate::processes::{Cleanup, ROLE, cleaner, start_server};

/// Runs the role that this process was started with; `None` for the first process.
pub fn run_role() -> Option<ExitCode> {
    let role = env::var(ROLE).ok()?;
    let arguments: Vec<PathBuf> = env::args_os().skip(1).map(PathBuf::from).collect();
    let done = match (role.as_str(), arguments.as_slice()) {
        ("start", [image, kind, place]) => {
            start_server(image, kind, place, Stdio::inherit(), Stdio::inherit())
        }
        ("namespace", [image, place, name]) => namespace::make(image, place, name),
        ("serve", [image, kind, place]) => serve(image, kind, place),
        ("clean", [kind, place]) => clean(kind, place),
        _ => Err(Failure::new("started with a task that it does not know")),
    };
    Some(match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(FAILED),
    })
}

/// Serves the mount whose connection is standard input.
fn serve(image: &Path, kind: &Path, place: &Path) -> Result<(), Failure> {
    let failed = |error| Failure::io("taking the connection", &error);
    // The cleaner sees the end of this process as end of file on the pipe.
    let (reader, writer) = std::io::pipe().map_err(failed)?;
    // Start the cleaner while the image is opened, for which the program waits. Both finish before
    // the first answer.
    let opened = thread::scope(|scope| {
        let reader = Stdio::from(OwnedFd::from(reader));
        let cleaning = scope.spawn(|| cleaner(reader, kind, place));
        let opened = AppImage::open(image).and_then(|image| image.payload());
        let cleaner = cleaning.join();
        let cleaner = cleaner.unwrap_or_else(|_| Err(Failure::new("a thread has ended")));
        cleaner.and(opened)
    });
    let (driver, source) = opened?;
    let contents = Contents::new(driver, source);
    let connection = std::io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .map_err(failed)?;
    let socket = std::io::stdout()
        .as_fd()
        .try_clone_to_owned()
        .map_err(failed)?;
    let mut socket = File::from(socket);
    if kind == Path::new(Cleanup::Directory.name()) {
        let made = socket.read_exact(&mut [0]);
        made.map_err(|error| Failure::io("waiting for the mount", &error))?;
    } else {
        // End of file: all of the program's processes have ended.
        thread::spawn(move || {
            wait_for_end(socket);
            std::process::exit(0);
        });
    }
    fuse::serve(connection, contents, getuid().as_raw(), getgid().as_raw());
    drop(writer);
    Ok(())
}
