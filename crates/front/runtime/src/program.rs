//! Runs the AppImage's program: replaces this process if the image is mounted, or runs as a child
//! if the files were extracted.

use std::ffi::OsString;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::thread;

use rustix::io::FdFlags;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

use crate::contents::Contents;
use crate::extract::Extraction;
use crate::failure::Failure;
use crate::identity::Identity;
use crate::mount::{self, Mounted};
use crate::options::is_set;
use crate::payload::AppImage;
use crate::{cleaning, processes};

/// Variable that keeps the files of `--appimage-extract-and-run`.
const NO_CLEANUP: &str = "NO_CLEANUP";
/// Signals passed on to the program. The terminal sends keyboard signals to both processes.
const PASSED_ON: [i32; 4] = [SIGTERM, SIGHUP, SIGUSR1, SIGUSR2];
const OF_KEYBOARD: [i32; 2] = [SIGINT, SIGQUIT];

/// Mounts the image and runs its program. Extracts the image if it cannot be mounted.
pub fn run(identity: &Identity, arguments: &[OsString]) -> Result<u8, Failure> {
    let image = AppImage::open(&identity.opened)?;
    match mount::mount(&identity.opened, &identity.name(), false) {
        Ok(mounted) => become_program(identity, &image, &mounted, arguments),
        Err(reason) => {
            let (driver, source) = image.payload()?;
            crate::say(&format!(
                "the image cannot be mounted, and is extracted instead: {reason}"
            ));
            run_extracted(identity, &Contents::new(driver, source), arguments)
        }
    }
}

/// Replaces this process with the program. Returns only on failure.
fn become_program(
    identity: &Identity,
    image: &AppImage,
    mounted: &Mounted,
    arguments: &[OsString],
) -> Result<u8, Failure> {
    if let Some(life) = &mounted.life {
        // The program's processes inherit the socket, which keeps the mount.
        let inherited = rustix::io::fcntl_setfd(life, FdFlags::empty());
        inherited.map_err(|error| Failure::io("keeping the mount", &error.into()))?;
    }
    let error = identity.program(&mounted.place, arguments).exec();
    // The cleaner does the same, unless the server failed before it started one.
    let _what_is_still_there = cleaning::remove_mount(mounted.way, &mounted.place);
    // If the server failed to open the image, it had nowhere to report why; report it here.
    image.payload()?;
    Err(Failure::start("AppRun", &error))
}

/// Extracts the image into a new directory, runs its program there, and removes the directory.
pub fn extract_and_run(identity: &Identity, arguments: &[OsString]) -> Result<u8, Failure> {
    let (driver, source) = AppImage::open(&identity.opened)?.payload()?;
    run_extracted(identity, &Contents::new(driver, source), arguments)
}

fn run_extracted(
    identity: &Identity,
    contents: &Contents,
    arguments: &[OsString],
) -> Result<u8, Failure> {
    let place = mount::fresh_directory("appimage_extracted_", &identity.name())?;
    if is_set(NO_CLEANUP) {
        return fill_and_run(identity, contents, &place, arguments);
    }
    // The cleaner removes the files if this process is killed.
    let pair = std::os::unix::net::UnixStream::pair();
    let (life, theirs) = pair.map_err(|error| Failure::io("making a socket", &error))?;
    processes::start_cleaner(theirs, &place)?;
    let inherited = rustix::io::fcntl_setfd(&life, FdFlags::empty());
    inherited.map_err(|error| Failure::io("keeping the files", &error.into()))?;
    let ran = fill_and_run(identity, contents, &place, arguments);
    let removed = cleaning::remove_tree(&place);
    let status = ran?;
    removed.map(|()| status)
}

fn fill_and_run(
    identity: &Identity,
    contents: &Contents,
    place: &Path,
    arguments: &[OsString],
) -> Result<u8, Failure> {
    let mut extraction = Extraction::new(contents, place, None)?;
    extraction.run(&mut |_| {})?;
    let signals = Signals::new(PASSED_ON.into_iter().chain(OF_KEYBOARD));
    let signals = signals.map_err(|error| Failure::io("handling signals", &error))?;
    let child = identity.program(place, arguments).spawn();
    let child = child.map_err(|error| Failure::start("AppRun", &error))?;
    wait(child, signals)
}

fn wait(mut child: Child, mut signals: Signals) -> Result<u8, Failure> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let handle = signals.handle();
    let passing = thread::spawn(move || {
        for signal in signals.forever() {
            let known = PASSED_ON.contains(&signal);
            let signal = Signal::from_named_raw(signal).filter(|_| known);
            if let (Some(pid), Some(signal)) = (pid, signal) {
                let _it_may_have_ended = kill_process(pid, signal);
            }
        }
    });
    let status = child.wait();
    handle.close();
    let _it_has_nothing_to_return = passing.join();
    let status = status.map_err(|error| Failure::io("waiting for AppRun", &error))?;
    Ok(exit_code(status))
}

/// Returns the exit status as a shell does: 128 plus the signal number if a signal ended the
/// program.
fn exit_code(status: ExitStatus) -> u8 {
    let code = match (status.code(), status.signal()) {
        (Some(code), _) => code,
        (None, signal) => signal.unwrap_or(0) + 128,
    };
    u8::try_from(code).unwrap_or(u8::MAX)
}
