//! The log of the libraries on standard error, which `-v` extends.

use tracing::level_filters::LevelFilter;

use crate::escape::LogOutput;

/// Starts it: warnings always, more with each `-v`. Without colours if standard error will be
/// `to_file` later. Lines have a time, but on the terminal of a command in the foreground: the user sees when
/// they come.
pub fn init(verbose: u8, to_file: bool, in_background: bool) {
    let level = match verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let is_terminal = !to_file && std::io::IsTerminal::is_terminal(&std::io::stderr());
    let log = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(|| LogOutput)
        .with_ansi(is_terminal)
        .with_target(false)
        // To standard error, which is what failed: that would be a panic.
        .log_internal_errors(false);
    // Fails only where a log was started before, which is then the one to use.
    let _ = if is_terminal && !in_background {
        log.without_time().try_init()
    } else {
        log.try_init()
    };
}
