//! Failures as the user sees them: what failed, where in the image, and what to try.
//!
//! Errors of the libraries say what failed and where. [`advice`](crate::advice) adds the exit code
//! and a hint, commands add the names. Commands return a [`Failure`], or report it and continue.

use std::fmt;
use std::io;

use crate::escape::{escape, printable};
use crate::exit::Exit;

/// The result of every command.
pub type Result<T = Exit> = std::result::Result<T, Failure>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The exit code, unless an earlier failure decided it.
    pub exit: Exit,
    /// Short stable name for `--json`.
    pub kind: &'static str,
    /// The file of the system that failed.
    pub subject: Option<String>,
    /// The path in the image that failed.
    pub path: Option<Vec<u8>>,
    pub message: String,
    pub hint: Option<String>,
}

impl Failure {
    /// Creates a failure without a subject.
    pub fn new(exit: Exit, kind: &'static str, message: impl Into<String>) -> Self {
        Self {
            exit,
            kind,
            subject: None,
            path: None,
            message: message.into(),
            hint: None,
        }
    }

    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, "usage", message)
    }

    /// Creates a failure for an output that cannot or may not be written.
    pub fn output(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::new(
                Exit::BrokenPipe,
                "broken_pipe",
                "the reader of the output has closed it",
            );
        }
        let hint = match error.kind() {
            io::ErrorKind::StorageFull => Some("free some space, or write elsewhere"),
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Some("choose a directory where you may write")
            }
            io::ErrorKind::NotFound => Some("its directory must exist: make it first"),
            _ => None,
        };
        Self::new(Exit::Output, "output", reason(error)).maybe_hint(hint)
    }

    /// Creates a failure for a file of the system that could not be opened or read.
    pub fn source(error: &io::Error) -> Self {
        Self::new(Exit::Source, "io", reason(error))
    }

    /// Sets the file that the failure is about.
    #[must_use]
    pub fn of(mut self, subject: impl fmt::Display) -> Self {
        let subject = subject.to_string();
        // Hints contain IMAGE. Replacing it by a name that needs no quoting makes them ready to be
        // pasted.
        let is_plain = |char: char| char.is_ascii_alphanumeric() || "/._-+".contains(char);
        if let Some(hint) = &mut self.hint
            && subject.chars().all(is_plain)
        {
            *hint = hint.replace("IMAGE", &subject);
        }
        self.subject = Some(subject);
        self
    }

    /// Sets the path in the image that the failure is about.
    #[must_use]
    pub fn at(mut self, path: &[u8]) -> Self {
        self.path = Some(path.to_vec());
        self
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    #[must_use]
    pub fn maybe_hint(mut self, hint: Option<&str>) -> Self {
        self.hint = hint.map(str::to_string);
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("forerun: ")?;
        if let Some(subject) = &self.subject {
            // Messages of servers start with the address.
            let prefix = format!("{subject}: ");
            if self.path.is_some() || !self.message.starts_with(&prefix) {
                f.write_str(&printable(&prefix))?;
            }
        }
        if let Some(path) = &self.path {
            write!(f, "{}: ", escape(path))?;
        }
        f.write_str(&printable(&self.message))?;
        if let Some(hint) = &self.hint {
            write!(f, "\n  hint: {}", printable(hint))?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

/// Returns the system's message without the error number, which means nothing to a user.
pub fn reason(error: &io::Error) -> String {
    without_errno(&error.to_string())
}

/// Removes every `" (os error N)"`.
pub fn without_errno(message: &str) -> String {
    const MARK: &str = " (os error ";
    let mut text = String::with_capacity(message.len());
    let mut rest = message;
    while let Some((before, after)) = rest.split_once(MARK) {
        text.push_str(before);
        match after.split_once(')') {
            Some((number, after)) if number.bytes().all(|byte| byte.is_ascii_digit()) => {
                rest = after;
            }
            _ => {
                text.push_str(MARK);
                rest = after;
            }
        }
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errno_goes() {
        for (message, expected) in [
            ("No such file (os error 2)", "No such file"),
            ("a (os error 5): b (os error 6)!", "a: b!"),
            ("a (os error x)", "a (os error x)"),
            ("", ""),
        ] {
            assert_eq!(without_errno(message), expected);
        }
    }

    #[test]
    fn an_address_is_said_once() {
        let failure = Failure::new(Exit::Source, "remote", "https://h/x: not found");
        let text = failure.of("https://h/x").to_string();
        assert_eq!(text, "forerun: https://h/x: not found");
    }

    #[test]
    fn says_what_where_and_what_to_try() {
        let failure = Failure::from(forerun::vfs::Error::IsADirectory)
            .of("a.img")
            .at(b"/etc\n");
        assert_eq!(failure.exit, Exit::Image);
        assert_eq!(
            failure.to_string(),
            "forerun: a.img: /etc\\n: is a directory\n  hint: forerun ls lists a directory, \
             forerun extract copies it"
        );
    }
}
