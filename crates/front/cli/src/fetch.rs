//! Opens an image at a server, with what the user is told about that.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use forerun::remote::{DownloadReport, Reference, RemoteImage};
use forerun_export::Progress as _;

use crate::args::RemoteArgs;
use crate::context::Context;
use crate::error::Result;
use crate::progress::Progress;
use crate::remote::{failure, human};

/// Opens an image at a server. Servers are asked what it is, and nothing more, unless they send files only
/// whole: then it is downloaded.
pub fn open(
    context: &Context,
    reference: &Reference,
    args: &RemoteArgs,
) -> Result<Arc<RemoteImage>> {
    let mut options = args.options();
    options.download = downloads(context);
    let image = forerun::remote::open(reference, &options).map_err(|error| failure(&error))?;
    tracing::info!(place = image.place(), identity = %image.identity(), "opened");
    tell_of_memory(context, &image);
    context.observe_remote(&image);
    Ok(image)
}

/// Reports downloads: a note before the first byte, then a progress bar.
fn downloads(context: &Context) -> DownloadReport {
    let (bar, note) = (Progress::new(context, "downloading", 0), context.notes());
    let state = Mutex::new((bar, None));
    DownloadReport::new(move |place, progress| {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        let (bar, before) = &mut *state;
        match before.replace(progress.done) {
            None => {
                let size = human(progress.total);
                note(&format!(
                    "{place}: the server does not answer range requests: all of it is downloaded \
                     first ({size})"
                ));
                bar.begin(progress.total, 0);
            }
            Some(before) => bar.add(progress.done.saturating_sub(before)),
        }
    })
}

/// Reports that the image is as its server had it before, unless it cannot have changed.
fn tell_of_memory(context: &Context, image: &RemoteImage) {
    let Some(memory) = image.from_memory().filter(|memory| !memory.by_digest) else {
        return;
    };
    let place = crate::escape::printable(image.place());
    let date = date(memory.answered);
    match &memory.reason {
        Some(reason) => {
            let reason = crate::escape::printable(&reason.to_string());
            tracing::warn!("{reason}; {place} is opened from the cache, as it was on {date}");
        }
        None => context.note(&format!("{place} is opened as it was on {date}")),
    }
}

/// Formats a date that says its zone.
fn date(time: SystemTime) -> String {
    match jiff::Timestamp::try_from(time) {
        Ok(time) => time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
        Err(_) => "an unknown date".to_string(),
    }
}
