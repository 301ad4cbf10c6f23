//! Loop devices, by losetup(8) of util-linux.
//!
//! Setting one up takes ioctls, which no well-kept crate wraps without a C compiler's libraries;
//! losetup is on every system that has loop devices. The device is asked to detach as soon as the
//! superblock holds it: the kernel then waits for the last user, so that nothing is left when the
//! mount ends, in whatever way.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::error::Error;

/// A device that shows a part of a file. Detached when dropped, or once its last user is gone.
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
}

impl LoopDevice {
    /// Shows `size` bytes of `file` from `offset` on, or all the rest, read-only.
    pub fn attach(file: &Path, offset: u64, size: Option<u64>) -> Result<Self, Error> {
        let failed = |reason: String| Error::Loop {
            path: file.to_path_buf(),
            reason,
        };
        let mut command = losetup();
        command.args(["--find", "--show", "--read-only"]);
        if offset > 0 {
            command.arg("--offset").arg(offset.to_string());
        }
        if let Some(size) = size {
            command.arg("--sizelimit").arg(size.to_string());
        }
        let output = command.arg("--").arg(file).output();
        let output = output.map_err(|error| failed(no_program(&error)))?;
        let name = said(&output).map_err(failed)?;
        let path = PathBuf::from(OsString::from_vec(name));
        if !path.is_absolute() {
            return Err(failed(format!("losetup answers {:?}", path.display())));
        }
        Ok(Self { path })
    }

    /// Returns `/dev/loopN`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the device for reading.
    pub fn open(&self) -> io::Result<File> {
        File::open(&self.path)
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let output = losetup().arg("--detach").arg(&self.path).output();
        let detached = output.map_err(|error| no_program(&error));
        if let Err(reason) = detached.and_then(|output| said(&output)) {
            tracing::warn!("{} stays behind: {reason}", self.path.display());
        }
    }
}

fn losetup() -> Command {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Users' paths often lack the directories of system programs.
    let mut dirs: Vec<_> = std::env::split_paths(&path).collect();
    dirs.extend(["/usr/sbin", "/sbin"].map(PathBuf::from));
    let found = dirs
        .iter()
        .map(|dir| dir.join("losetup"))
        .find(|program| program.is_absolute() && program.is_file());
    let mut command = Command::new(found.unwrap_or_else(|| PathBuf::from("losetup")));
    // Ctrl-C must not end losetup: it could leave a device behind.
    command.process_group(0);
    command.env("LC_ALL", "C").stdin(Stdio::null());
    command
}

fn no_program(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => {
            "the program losetup is not installed (Debian package util-linux)".to_string()
        }
        _ => format!("losetup: {error}"),
    }
}

/// Returns the line on standard output, or the reason of a failure.
fn said(output: &Output) -> Result<Vec<u8>, String> {
    if output.status.success() {
        return Ok(output.stdout.trim_ascii().to_vec());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    match message.trim() {
        "" => Err(format!("losetup: {}", output.status)),
        message => Err(message.to_string()),
    }
}
