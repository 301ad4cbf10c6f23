//! Entry points for fuzz targets. Not for users.
//!
//! They cover both ends of the socket of `forerun status`: the bytes of a process that asks, and of
//! one that answers.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use crate::commands::status;
use crate::socket;

const ANSWER: &[u8] = b"{}\n";

/// Handles bytes as a question. Returns whether it was understood.
#[must_use]
pub fn question(bytes: &[u8]) -> bool {
    let Ok((mut asker, server)) = UnixStream::pair() else {
        return false;
    };
    // More bytes than the socket buffers would wait for a reader.
    let bytes = bytes.get(..4096).unwrap_or(bytes);
    if asker.write_all(bytes).is_err() || asker.shutdown(Shutdown::Write).is_err() {
        return false;
    }
    let asked = socket::question(&server);
    let is_understood = asked.is_ok();
    if let Ok(asked) = asked {
        assert!(asked.as_bytes() == bytes, "another question");
        assert!((&server).write_all(ANSWER).is_ok());
    }
    drop(server);
    let mut answer = Vec::new();
    let read = asker.read_to_end(&mut answer);
    assert!(read.is_err() || answer == ANSWER || !is_understood);
    is_understood
}

/// Handles bytes as the answers of processes, one per line, and shows them as `forerun status`
/// does.
pub fn answers(bytes: &[u8]) {
    let mut mounts = Vec::new();
    for line in bytes.split(|&byte| byte == b'\n') {
        if let Ok(mount) = serde_json::from_slice(line) {
            mounts.push(mount);
        }
    }
    let _total = status::total(&mounts);
    for verbose in [false, true] {
        for line in status::report(&mut mounts, verbose) {
            // A hostile name must not control the terminal.
            assert!(!line.contains(char::is_control), "{line:?}");
        }
    }
}
