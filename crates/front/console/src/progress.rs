//! A progress bar for work that takes over a second, on a terminal.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use forerun::build::ImageOutput;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::context::Context;

/// Shorter work shows no bar.
const FIRST_SHOWN: Duration = Duration::from_secs(1);
const TEMPLATE: &str =
    "{msg} {bar:12} {binary_bytes}/{binary_total_bytes}  {binary_bytes_per_sec}  {eta} left";
/// The same for work of unknown length.
const WITHOUT_TOTAL: &str = "{msg} {spinner} {binary_bytes}  {binary_bytes_per_sec}";

/// A counter of bytes that shows a bar after a second. Dropping it removes the bar.
pub struct Progress {
    bar: Option<ProgressBar>,
    start: Instant,
    shown: AtomicBool,
}

impl Progress {
    /// Starts work on about `total` bytes, or on an unknown number if `total` is 0. `verb` names
    /// the work.
    pub fn new(context: &Context, verb: &'static str, total: u64) -> Self {
        let bar = context.shows_progress().then(|| bar(verb, total));
        Self {
            bar,
            start: Instant::now(),
            shown: AtomicBool::new(false),
        }
    }

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
            set_total(bar, total_bytes);
        }
    }

    fn advance(&self, bytes: u64, _files: u64) {
        self.add(bytes);
    }
}

/// Creates a bar that is not shown yet.
fn bar(verb: &'static str, total: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
    bar.set_style(style(WITHOUT_TOTAL));
    bar.set_message(verb);
    if total > 0 {
        set_total(&bar, total);
    }
    bar
}

fn set_total(bar: &ProgressBar, total: u64) {
    bar.set_length(total);
    bar.set_style(style(TEMPLATE));
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// An output that reports written bytes as progress.
pub struct Watched<'a, W> {
    pub inner: W,
    pub progress: &'a Progress,
}

impl<W: Write> Write for Watched<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.progress.add(crate::size::count_of(written));
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    use forerun_export::Progress as _;
    use indicatif::TermLike;

    fn progress(total: u64) -> Progress {
        Progress {
            bar: Some(bar("checking", total)),
            start: Instant::now(),
            shown: AtomicBool::new(false),
        }
    }

    #[test]
    fn work_of_unknown_length_has_no_total() {
        let unknown = progress(0);
        unknown.begin(0, 0);
        unknown.advance(1000, 1);
        let bar = unknown.bar.as_ref().unwrap();
        assert_eq!((bar.length(), bar.position()), (None, 1000));
        unknown.begin(4000, 2);
        assert_eq!((bar.length(), bar.position()), (Some(4000), 1000));
        assert_eq!(progress(70).bar.as_ref().unwrap().length(), Some(70));
    }

    #[derive(Clone, Debug, Default)]
    struct Screen(Arc<Mutex<String>>);

    impl TermLike for Screen {
        fn width(&self) -> u16 {
            200
        }

        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write_str(text)
        }

        fn write_str(&self, text: &str) -> io::Result<()> {
            self.0.lock().unwrap().push_str(text);
            Ok(())
        }

        fn clear_line(&self) -> io::Result<()> {
            self.0.lock().unwrap().clear();
            Ok(())
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_bar_has_at_most_80_columns() {
        for total in [0, (1 << 50) - 1] {
            let screen = Screen::default();
            let bar = bar("fetching layers", total);
            bar.set_draw_target(ProgressDrawTarget::term_like(Box::new(screen.clone())));
            bar.inc((1 << 40) - 1);
            bar.force_draw();
            let shown = screen.0.lock().unwrap().trim_end().to_string();
            let columns = shown.chars().count();
            assert!((20..=80).contains(&columns), "{columns}: {shown}");
        }
    }

    #[test]
    fn both_templates_are_valid() {
        for template in [TEMPLATE, WITHOUT_TOTAL] {
            assert!(ProgressStyle::with_template(template).is_ok(), "{template}");
        }
    }
}
