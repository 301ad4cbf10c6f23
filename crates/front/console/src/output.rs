//! Standard output. Errors are reported, but a reader may stop early (`forerun ls ... | head`).
//! Also prints the counters of `--stats`.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::fd::AsFd;

use forerun_io::StatsSnapshot;
use indicatif::HumanCount;
use serde_json::Value;

use crate::error::{Failure, Result};
use crate::size::human;

pub const STDOUT: &str = "standard output";

/// Opens standard output itself. `std::io::stdout` flushes at line breaks and swallows the error of
/// a closed descriptor.
pub fn stdout_file() -> Result<File> {
    let stdout = io::stdout();
    let file = stdout.as_fd().try_clone_to_owned();
    file.map(File::from).map_err(|error| failed(&error))
}

pub fn failed(error: &io::Error) -> Failure {
    Failure::output(error).of(STDOUT)
}

/// Refuses to print binary data to a terminal.
pub fn refuse_terminal(what: &str, hint: &str) -> Result<()> {
    if io::stdout().is_terminal() {
        let message = format!("standard output is a terminal, and {what} is not text");
        return Err(Failure::usage(message).hint(hint));
    }
    Ok(())
}

/// Standard output for text, or a file, buffered. Written data counts only after
/// [`finish`](Self::finish) has succeeded.
pub struct Output {
    inner: BufWriter<File>,
    /// Its name in messages.
    name: String,
    /// Whether a person reads it. Names are escaped then.
    pub is_terminal: bool,
}

impl Output {
    pub fn stdout() -> Result<Self> {
        Ok(Self {
            is_terminal: io::stdout().is_terminal(),
            ..Self::file(stdout_file()?, STDOUT)
        })
    }

    /// Writes to a file that messages call `name`.
    pub fn file(file: File, name: &str) -> Self {
        Self {
            inner: BufWriter::with_capacity(64 << 10, file),
            name: name.to_string(),
            is_terminal: false,
        }
    }

    pub fn text(&mut self, text: impl AsRef<[u8]>) -> Result<()> {
        let written = self.inner.write_all(text.as_ref());
        written.map_err(|error| Failure::output(&error).of(&self.name))
    }

    pub fn line(&mut self, text: impl AsRef<[u8]>) -> Result<()> {
        self.text(text)?;
        self.text("\n")
    }

    /// Writes a name: raw for a program, escaped for a person.
    pub fn name(&mut self, name: &[u8]) -> Result<()> {
        if self.is_terminal {
            self.text(crate::escape::escape(name))
        } else {
            self.text(name)
        }
    }

    /// Writes an indented JSON document and a line break.
    pub fn json(&mut self, value: &Value) -> Result<()> {
        self.line(format!("{value:#}"))
    }

    pub fn finish(&mut self) -> Result<()> {
        let flushed = self.inner.flush();
        flushed.map_err(|error| Failure::output(&error).of(&self.name))
    }
}

/// A JSON array that is written element by element, each on a line. Its memory is bounded however
/// long it is.
#[derive(Default)]
pub struct JsonArray {
    has_elements: bool,
}

impl JsonArray {
    pub fn push(&mut self, out: &mut Output, value: &Value) -> Result<()> {
        out.text(if self.has_elements { ",\n" } else { "[\n" })?;
        self.has_elements = true;
        out.text(value.to_string())
    }

    pub fn close(&self, out: &mut Output) -> Result<()> {
        out.text(if self.has_elements { "\n]" } else { "[]" })
    }

    /// Closes the array, which is the whole document.
    pub fn finish(&self, out: &mut Output) -> Result<()> {
        self.close(out)?;
        out.text("\n")
    }
}

pub fn print_stats(as_json: bool, stats: &StatsSnapshot) {
    let mut stderr = io::stderr().lock();
    // If standard error is gone, nothing can be reported.
    if as_json {
        let _ = writeln!(stderr, "{}", crate::json::stats(stats));
        return;
    }
    for (counter, value) in stats.iter().filter(|(_, value)| *value > 0) {
        let count = HumanCount(value).to_string();
        let size = if counter.name().ends_with("_bytes") {
            format!("  ({})", human(value))
        } else {
            String::new()
        };
        let _ = writeln!(stderr, "{:<24}{count:>20}{size}", counter.name());
    }
}

/// Returns the number of columns of the terminal on standard output.
pub fn terminal_width() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stdout());
    match size {
        Ok(size) if size.ws_col > 0 => usize::from(size.ws_col),
        _ => 80,
    }
}
