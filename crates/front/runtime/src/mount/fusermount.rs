//! Mounts with fusermount3, a set-user-ID program that sends the connection back over a socket.

use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use forerun_sys::packet;

use super::{FSTYPE, plain};
use crate::failure::Failure;
use crate::helper::find_fusermount;

const MESSAGE: u64 = 4 << 10;

/// Mounts on `place` with fusermount. Returns the connection.
pub fn attach(place: &Path, name: &str) -> Result<OwnedFd, Failure> {
    let program = find_fusermount()?;
    let failed = |error: io::Error| Failure::io(&program.display().to_string(), &error);
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    let subtype = FSTYPE.strip_prefix("fuse.").unwrap_or_default();
    // Dropping the command at the end of the statement closes our copy of the helper's socket, so
    // that the helper's exit is our end of file.
    let process = Command::new(&program)
        .arg("-o")
        .arg(format!(
            "ro,nosuid,nodev,subtype={subtype},fsname={}",
            plain(name)
        ))
        .arg("--")
        .arg(place)
        .env("_FUSE_COMMFD", "0")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let received = receive(&ours);
    let words = last_words(process);
    received.ok_or_else(|| Failure::new(words))
}

/// Waits for the helper to exit. Returns its error output, or its exit status if that is empty.
fn last_words(mut process: Child) -> String {
    let mut words = Vec::new();
    if let Some(stderr) = process.stderr.take() {
        let _as_far_as_it_goes = stderr.take(MESSAGE).read_to_end(&mut words);
    }
    let status = process.wait();
    let words = String::from_utf8_lossy(&words).trim().to_string();
    match status {
        Ok(status) if words.is_empty() => status.to_string(),
        _ => words,
    }
}

/// Receives the connection, which comes with one byte; `None` if the helper exited without sending
/// it.
fn receive(socket: &UnixStream) -> Option<OwnedFd> {
    let received = packet::receive(socket, 1).ok()??;
    received.descriptors.into_iter().next()
}
