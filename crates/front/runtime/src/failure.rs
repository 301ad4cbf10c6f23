//! Error messages and exit statuses of the runtime.

use std::fmt;
use std::io;

/// Exit status if the runtime itself fails; the same as for env(1) and timeout(1), and rare among
/// programs.
pub const FAILED: u8 = 125;
/// Exit status if `AppRun` exists but cannot be executed.
pub const NOT_RUN: u8 = 126;
pub const NOT_FOUND: u8 = 127;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    message: String,
    status: u8,
}

impl Failure {
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            status: FAILED,
        }
    }

    /// Creates the failure of the step `doing` from a system error.
    pub fn io(doing: &str, error: &io::Error) -> Self {
        Self::new(format!("{doing}: {}", reason(error)))
    }

    /// Creates the failure to start `program`, with the status that a shell would return.
    pub fn start(program: &str, error: &io::Error) -> Self {
        let status = match error.kind() {
            io::ErrorKind::NotFound => NOT_FOUND,
            _ => NOT_RUN,
        };
        let message = format!("starting {program}: {}", reason(error));
        Self { message, status }
    }

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

/// Returns the error's text without `(os error N)`.
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_string(),
        None => text,
    }
}
