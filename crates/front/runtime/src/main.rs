//! The runtime of an AppImage (type 2): the program in front of the image.
//!
//! It mounts the image that follows its own ELF file, then executes `AppRun` in it.
//! docs/appimage.md describes it for users; docs/decisions explains why it has its own FUSE loop.
//! Every AppImage contains a copy and must run anywhere, so the runtime is small and statically
//! linked.
//!
//! [`elf`] finds the image, [`payload`] opens it, [`mount`] mounts it, [`processes`] starts the
//! helper processes, [`roles`] has their code, [`fuse`] serves the mount, and [`program`] runs
//! `AppRun`.

mod cleaning;
mod contents;
mod elf;
mod extract;
mod failure;
mod fuse;
mod helper;
mod identity;
mod mount;
mod options;
mod pattern;
mod payload;
mod processes;
mod program;
mod roles;

use std::io::{Read, Write};
use std::path::Path;
use std::process::ExitCode;

use contents::Contents;
use extract::Extraction;
use failure::Failure;
use identity::Identity;
use options::Action;
use payload::AppImage;

const EXTRACTED: &str = "squashfs-root";

fn main() -> ExitCode {
    if let Some(code) = roles::run_role() {
        return code;
    }
    match run() {
        Ok(status) => ExitCode::from(status),
        Err(failure) => {
            say(&failure.to_string());
            ExitCode::from(failure.status())
        }
    }
}

fn run() -> Result<u8, Failure> {
    let action = Action::parse(std::env::args_os().skip(1).collect())?;
    let mut identity = Identity::find()?;
    if let Action::Run(_) | Action::ExtractAndRun(_) = action {
        identity.find_portable();
    }
    match action {
        Action::Run(arguments) => return program::run(&identity, &arguments),
        Action::ExtractAndRun(arguments) => return program::extract_and_run(&identity, &arguments),
        Action::Extract(pattern) => return extract(&identity, pattern.as_deref()),
        Action::Mount => mount_until_killed(&identity)?,
        Action::Offset => {
            let image = AppImage::open(&identity.opened)?;
            print(format!("{}\n", image.offset()).as_bytes())?;
        }
        Action::MakePortable(portable) => {
            let made = identity.make_portable(portable)?;
            print(format!("{}\n", made.display()).as_bytes())?;
        }
        Action::Section(names) => {
            let image = AppImage::open(&identity.opened)?;
            for name in names {
                let mut text = image.section(name)?;
                if !text.is_empty() && !text.ends_with(b"\n") {
                    text.push(b'\n');
                }
                print(&text)?;
            }
        }
        Action::Version => {
            print(concat!("forerun-runtime ", env!("CARGO_PKG_VERSION"), "\n").as_bytes())?;
        }
        Action::Help => print(options::HELP.as_bytes())?,
    }
    Ok(0)
}

fn extract(identity: &Identity, pattern: Option<&std::ffi::OsStr>) -> Result<u8, Failure> {
    let (driver, source) = AppImage::open(&identity.opened)?.payload()?;
    let contents = Contents::new(driver, source);
    let mut extraction = Extraction::new(&contents, Path::new(EXTRACTED), pattern)?;
    let mut out = std::io::BufWriter::new(std::io::stdout());
    let found = extraction.run(&mut |path| {
        // The reader of the list may have closed the pipe; the extraction continues.
        let _no_reader = writeln!(out, "{EXTRACTED}/{}", path.display());
    })?;
    let _no_reader = out.flush();
    for left in &extraction.left_out {
        say(&format!("{left}: left out"));
    }
    match (found, pattern) {
        (0, Some(pattern)) => Err(Failure::new(format!(
            "no file of the image matches {}",
            pattern.display()
        ))),
        _ => Ok(0),
    }
}

/// Mounts, prints the directory, and waits for the unmount. The mount also ends when this process
/// does.
fn mount_until_killed(identity: &Identity) -> Result<(), Failure> {
    AppImage::open(&identity.opened)?.payload()?;
    let mounted = mount::mount(&identity.opened, &identity.name(), true);
    let mounted = mounted.map_err(|reason| {
        Failure::new(format!(
            "no mount that other programs see: {reason}. --appimage-extract needs none"
        ))
    })?;
    print(format!("{}\n", mounted.place.display()).as_bytes())?;
    if let Some(mut life) = mounted.life {
        // The server never writes; this read returns when the server ends.
        let _end = life.read(&mut [0]);
    }
    Ok(())
}

fn say(message: &str) {
    // Standard error may be closed.
    let _unread = writeln!(std::io::stderr(), "AppImage: {message}");
}

fn print(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = std::io::stdout();
    let written = out.write_all(bytes).and_then(|()| out.flush());
    written.map_err(|error| Failure::io("writing to standard output", &error))
}
