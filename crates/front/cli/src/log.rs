//! The log of the libraries on standard error, which `-v` extends.

use tracing::level_filters::LevelFilter;

/// Starts it: warnings always, more with each `-v`. Without colours if standard error will be
/// `to_file` later.
pub fn init(verbose: u8, to_file: bool) {
    let level = match verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    // Fails only where a log was started before, which is then the one to use.
    let _ = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_ansi(!to_file && std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .with_target(false)
        // To standard error, which is what failed: that would be a panic.
        .log_internal_errors(false)
        .try_init();
}
