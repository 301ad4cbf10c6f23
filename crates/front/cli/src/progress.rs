//! A progress bar for what takes over a second, where a person watches.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use forerun::build::ImageOutput;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::context::Context;

/// Nothing is shown of work that is over before this.
const FIRST_SHOWN: Duration = Duration::from_secs(1);
const TEMPLATE: &str =
    "{msg} {bar:28} {binary_bytes}/{binary_total_bytes}  {binary_bytes_per_sec}  {eta} left";

/// A counter of bytes, which shows them once that is worth it. It leaves the screen when dropped.
pub struct Progress {
    bar: Option<ProgressBar>,
    start: Instant,
    shown: AtomicBool,
}

impl Progress {
    /// Begins work on about `total` bytes; `verb` says what is done with them.
    pub fn new(context: &Context, verb: &'static str, total: u64) -> Self {
        let bar = context.shows_progress().then(|| {
            let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::hidden());
            let style = ProgressStyle::with_template(TEMPLATE);
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.set_message(verb);
            bar
        });
        Self {
            bar,
            start: Instant::now(),
            shown: AtomicBool::new(false),
        }
    }

    /// Counts more bytes as done.
    pub fn add(&self, bytes: u64) {
        let Some(bar) = &self.bar else {
            return;
        };
        bar.inc(bytes);
        if self.start.elapsed() >= FIRST_SHOWN && !self.shown.swap(true, Ordering::Relaxed) {
            bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }

    /// Prints above the bar, to standard error.
    pub fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }
}

impl forerun_export::Progress for Progress {
    fn begin(&self, total_bytes: u64, _total_files: u64) {
        if let Some(bar) = self.bar.as_ref().filter(|_| total_bytes > 0) {
            bar.set_length(total_bytes);
        }
    }

    fn advance(&self, bytes: u64, _files: u64) {
        self.add(bytes);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// An output whose bytes are progress.
pub struct Watched<'a, W> {
    /// The output.
    pub inner: W,
    /// The progress that counts them.
    pub progress: &'a Progress,
}

impl<W: Write> Write for Watched<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.progress
            .add(u64::try_from(written).unwrap_or(u64::MAX));
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<W: ImageOutput> ImageOutput for Watched<'_, W> {
    fn patch(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.inner.patch(offset, bytes)
    }

    fn zeros(&mut self, len: u64) -> io::Result<()> {
        self.inner.zeros(len)
    }
}
