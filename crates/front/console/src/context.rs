//! The context of a command besides its own arguments: how to print messages, the counters to print
//! at the end, and the cleanup after an interrupt.

use std::cell::RefCell;
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use forerun::Observer;
use forerun::unstable::remote::RemoteImage;
use forerun::vfs::VolumeInfo;
use forerun_sandbox::Sandbox;

use crate::args::{Global, ImageArgs};
use crate::confine::Confinement;
use crate::error::Failure;
use crate::exit::Exit;
use crate::json;
use crate::size::counted;

#[derive(Debug)]
pub struct Context {
    pub global: Global,
    pub confinement: Confinement,
    observers: RefCell<Vec<Arc<Observer>>>,
    remotes: RefCell<Vec<Arc<RemoteImage>>>,
    started: Instant,
}

impl Context {
    pub fn new(global: Global) -> Self {
        Self {
            global,
            confinement: Confinement::default(),
            observers: RefCell::new(Vec::new()),
            remotes: RefCell::new(Vec::new()),
            started: Instant::now(),
        }
    }

    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Enters the sandbox. The process keeps only the rights that `sandbox` names. Does nothing
    /// with `--no-sandbox`.
    pub fn confine(&self, sandbox: &Sandbox) {
        self.confinement.enter(&self.global, sandbox);
    }

    /// Prints warnings that the user of an image should read before using it.
    pub fn warn_of(&self, name: &str, info: &VolumeInfo) {
        for warning in &info.warnings {
            self.note(&format!("{name}: {warning}"));
        }
    }

    /// Reports how many members of an image are not part of its tree, and so not of any output.
    /// Returns the exit code.
    pub fn left_out(&self, name: &str, count: u64) -> Exit {
        if count == 0 {
            return Exit::Ok;
        }
        let text = format!("left out: {}", counted(count, "entry", "entries"));
        self.report(&Failure::new(Exit::Partial, "left_out", text).of(name));
        Exit::Partial
    }

    /// Registers an observer, whose counters `--stats` prints at the end.
    pub fn observe(&self, observer: &Arc<Observer>) {
        self.observers.borrow_mut().push(Arc::clone(observer));
    }

    /// Registers a remote image, whose counters `--stats` prints at the end.
    #[cfg(feature = "network")]
    pub fn observe_remote(&self, image: &Arc<RemoteImage>) {
        self.remotes.borrow_mut().push(Arc::clone(image));
    }

    /// Returns the remote images, in the order in which they were opened.
    pub fn remotes(&self) -> Vec<Arc<RemoteImage>> {
        self.remotes.borrow().clone()
    }

    /// Saves the state of remote images that dropping them would save. Threads that serve until the
    /// process ends hold them too, so they are not dropped. Returns the exit code.
    pub fn finish_remotes(&self, exit: Exit) -> Exit {
        #[cfg(feature = "network")]
        let mut exit = exit;
        #[cfg(feature = "network")]
        for image in self.remotes.borrow().iter() {
            // The user asked for the file with --record.
            if let Err(error) = image.save_accesses() {
                exit = exit.and(self.report(&Failure::output(&error).of("--record")));
            }
            if let Err(error) = image.blob().flush() {
                tracing::warn!("chunks could not be made durable: {error}");
            }
            // A thread may hold the image until the process ends.
            image.blob().remove_temporary();
        }
        exit
    }

    /// Prints the counters if `--stats` was given.
    pub fn print_stats(&self) {
        let as_json = self.global.json;
        if self.global.stats {
            for observer in self.observers.borrow().iter() {
                crate::output::print_stats(as_json, &observer.stats().snapshot());
            }
            for image in self.remotes.borrow().iter() {
                crate::remote::print_stats(as_json, &image.status());
            }
        }
    }

    /// Reports a failure at once, for a command that continues. Returns its exit code.
    pub fn report(&self, failure: &Failure) -> Exit {
        if failure.exit != Exit::BrokenPipe {
            let text = if self.global.json {
                json::failure(failure).to_string()
            } else {
                failure.to_string()
            };
            // If standard error is gone, nothing can be reported.
            let _ = writeln!(std::io::stderr(), "{text}");
        }
        failure.exit
    }

    /// Reports many failures, with each different hint once, at the end.
    pub fn report_all(&self, failures: Vec<Failure>) {
        let mut hints = Vec::new();
        for mut failure in failures {
            let hint = if self.global.json {
                None
            } else {
                failure.hint.take()
            };
            self.report(&failure);
            if let Some(hint) = hint.filter(|hint| !hints.contains(hint)) {
                hints.push(hint);
            }
        }
        for hint in hints {
            let hint = crate::escape::printable(&hint);
            let _ = writeln!(std::io::stderr(), "  hint: {hint}");
        }
    }

    /// Prints a message that is no failure, unless `--quiet` or `--json` was given.
    pub fn note(&self, text: &str) {
        self.notes()(text);
    }

    /// Returns a function that does the same, for callbacks that outlive this borrow.
    pub fn notes(&self) -> impl Fn(&str) + Send + Sync + use<> {
        let shown = !self.global.quiet && !self.global.json;
        move |text| {
            if shown {
                let text = crate::escape::printable(text);
                let _ = writeln!(std::io::stderr(), "forerun: {text}");
            }
        }
    }

    /// Returns whether a progress bar may be shown: standard error is a terminal, and neither
    /// `--quiet` nor `--json` was given.
    pub fn shows_progress(&self) -> bool {
        !self.global.quiet && !self.global.json && std::io::stderr().is_terminal()
    }
}

pub fn image_name(args: &ImageArgs) -> String {
    crate::layers::shown(args.images())
}
