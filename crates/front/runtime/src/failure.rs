//! Why the runtime cannot do what it was asked for, in words for the user.

use std::fmt;
use std::io;

/// Exit status where the runtime itself fails. It is that of env(1) and timeout(1), so it tells the failure apart from
/// most that programs return.
pub const FAILED: u8 = 125;
/// Exit status where `AppRun` is there and cannot be run.
pub const NOT_RUN: u8 = 126;
/// Exit status where there is no `AppRun`.
pub const NOT_FOUND: u8 = 127;

/// A message, and the exit status that goes with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    message: String,
    status: u8,
}

impl Failure {
    /// Creates a failure of the runtime.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            status: FAILED,
        }
    }

    /// Creates the failure of what the runtime was doing when the system reported an error.
    pub fn io(doing: &str, error: &io::Error) -> Self {
        Self::new(format!("{doing}: {}", reason(error)))
    }

    /// Creates the failure of starting the program.
    pub fn start(program: &str, error: &io::Error) -> Self {
        let status = match error.kind() {
            io::ErrorKind::NotFound => NOT_FOUND,
            _ => NOT_RUN,
        };
        let message = format!("starting {program}: {}", reason(error));
        Self { message, status }
    }

    /// Returns the exit status.
    pub const fn status(&self) -> u8 {
        self.status
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<forerun_vfs::Error> for Failure {
    fn from(error: forerun_vfs::Error) -> Self {
        Self::new(format!("the image in this AppImage: {error}"))
    }
}

/// Returns the text of an error without its number.
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_string(),
        None => text,
    }
}
