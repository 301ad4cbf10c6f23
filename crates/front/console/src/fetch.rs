//! Opens a remote image, and reports to the user what that does.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use forerun::LayerSource;
use forerun::unstable::remote::{DownloadReport, Opened, Reference, RemoteImage};
use forerun_export::Progress as _;

use crate::args::RemoteArgs;
use crate::context::Context;
use crate::error::Result;
use crate::layer_count::{only_first, refuse_first};
use crate::progress::Progress;
use crate::remote::{failure, human};

/// Opens a remote image, or all layers of a container image. Servers are asked only for a
/// description, unless they send only whole files. In that case the file is downloaded.
pub fn open_all(context: &Context, reference: &Reference, args: &RemoteArgs) -> Result<Opened> {
    let mut options = args.options();
    options.download = downloads(context);
    let mut found = forerun::unstable::remote::open_all(reference, &options)
        .map_err(|error| failure(&error))?;
    match &mut found {
        Opened::Layers(layers) => only_first(layers, args)?,
        Opened::Image(_) => refuse_first(args)?,
    }
    match &found {
        Opened::Image(image) => opened(context, image),
        Opened::Layers(layers) => layers.iter().for_each(|layer| opened(context, layer)),
    }
    Ok(found)
}

/// The progress of layers that are fetched whole while an image is opened.
pub struct Fetching {
    bar: Progress,
    layers: Vec<Arc<RemoteImage>>,
    before: u64,
}

impl Fetching {
    /// Starts a progress bar if some of the layers are fetched whole.
    pub fn new(context: &Context, layers: &[LayerSource]) -> Self {
        let whole = layers.iter().filter(|layer| layer.is_unverified);
        let layers: Vec<_> = whole.filter_map(|layer| layer.server.clone()).collect();
        let total = layers.iter().map(|layer| layer.status().len).sum();
        let bar = Progress::new(context, "fetching layers", total);
        if total > 0 {
            bar.begin(total, 0);
        }
        Self {
            bar,
            layers,
            before: 0,
        }
    }

    pub fn report(&mut self) {
        let layers = self.layers.iter();
        let fetched = layers.map(|layer| layer.status().local_bytes).sum();
        self.bar.add(u64::saturating_sub(fetched, self.before));
        self.before = self.before.max(fetched);
    }
}

fn opened(context: &Context, image: &Arc<RemoteImage>) {
    tracing::info!(place = image.place(), identity = %image.identity(), "opened");
    tell_of_memory(context, image);
    context.observe_remote(image);
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
                let size = match progress.total {
                    0 => "the server does not say how long it is".to_owned(),
                    total => human(total),
                };
                note(&format!(
                    "{place}: the server does not answer range requests, so the whole file is downloaded first ({size})"
                ));
                bar.begin(progress.total, 0);
            }
            Some(before) => bar.add(progress.done.saturating_sub(before)),
        }
    })
}

/// Reports that the image has a remembered version, unless it cannot have changed.
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

/// Formats a time as date and time in UTC.
fn date(time: SystemTime) -> String {
    match jiff::Timestamp::try_from(time) {
        Ok(time) => time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
        Err(_) => "an unknown date".to_string(),
    }
}
