//! The log of the libraries on standard error, which `-v` extends. Its lines look like the messages
//! of commands.

use std::fmt::{self, Debug, Display, Write as _};

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::error::without_errno;
use crate::escape::printable;

/// Starts the log: always with warnings, and more with each `-v`. Lines have a time if they go
/// `to_file`; on a terminal the user sees when they appear, and a service manager adds a time.
pub fn init(verbose: u8, to_file: bool) {
    let level = match verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let log = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        // It would report to standard error, which is what failed, and panic.
        .log_internal_errors(false)
        .event_format(Line { has_time: to_file });
    // Fails only if a log was started before, which is then used.
    let _ = log.try_init();
}

/// The format of a line: `forerun: warning: SUBJECT: MESSAGE: REASON (NAME VALUE, ...)`.
struct Line {
    has_time: bool,
}

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        if self.has_time {
            SystemTime.format_time(&mut writer)?;
            writer.write_char(' ')?;
        }
        let mut words = Words::default();
        event.record(&mut words);
        let text = words.to_string();
        // Texts come from images and servers.
        let text = printable(&without_errno(&text));
        let level = prefix(*event.metadata().level());
        writeln!(writer, "forerun: {level}{text}")
    }
}

const fn prefix(level: Level) -> &'static str {
    match level {
        Level::ERROR => "",
        Level::WARN => "warning: ",
        Level::INFO => "info: ",
        Level::DEBUG => "debug: ",
        Level::TRACE => "trace: ",
    }
}

/// The fields of an event, sorted by their position in the line.
#[derive(Default)]
struct Words {
    subject: String,
    message: String,
    reason: String,
    others: String,
}

impl Words {
    fn add(&mut self, name: &str, value: &str) {
        let (list, separator) = match name {
            "message" => (&mut self.message, ""),
            "place" | "path" | "file" | "dir" | "name" | "program" => (&mut self.subject, ", "),
            "error" | "reason" => (&mut self.reason, ": "),
            _ => {
                let separator = if self.others.is_empty() { "" } else { ", " };
                let _never_fails = write!(self.others, "{separator}{name} {value}");
                return;
            }
        };
        if !list.is_empty() {
            list.push_str(separator);
        }
        list.push_str(value);
    }
}

impl Visit for Words {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field.name(), value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.add(field.name(), &format!("{value:?}"));
    }
}

impl Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The reason may start with the subject.
        let subject = match self.reason.strip_prefix(&self.subject) {
            Some(rest) if rest.starts_with(':') => "",
            _ => &self.subject,
        };
        let parts = [subject, &self.message, &self.reason];
        let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        f.write_str(&parts.join(": "))?;
        if self.others.is_empty() {
            Ok(())
        } else {
            write!(f, " ({})", self.others)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_of_the_log_look_like_messages() {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .event_format(Line { has_time: false })
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            let error = io::Error::from_raw_os_error(28);
            let place = "https://h/x";
            tracing::warn!("{} is not used", "/home/u/.netrc");
            tracing::warn!(%error, place, "chunks could not be made durable");
            tracing::warn!(reason = "https://h/x: not found", place, "it is left out");
            tracing::warn!(chunk = 3, digest = "ab", "a\nchunk\u{1b}[31m");
            tracing::error!("{error}");
            tracing::info!(signal = 2, "unmounted");
        });
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        assert_eq!(
            text,
            "forerun: warning: /home/u/.netrc is not used\n\
             forerun: warning: https://h/x: chunks could not be made durable: No space left on device\n\
             forerun: warning: it is left out: https://h/x: not found\n\
             forerun: warning: a\\nchunk\\033[31m (chunk 3, digest ab)\n\
             forerun: No space left on device\n\
             forerun: info: unmounted (signal 2)\n"
        );
    }
}
