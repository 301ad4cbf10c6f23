//! Opens the layers of an image in parallel. A layer from a server is decoded as it arrives.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use forerun_engine::MetadataSource;
use forerun_io::wait::{self, Stop};
use forerun_io::{BlobId, Observer, u32_from, u64_from, usize_from};
use forerun_layers::Layer;
use forerun_sys::memory_limit::MemoryLimit;
use forerun_sys::threads;
use forerun_vfs::{Error, FileSystem, KeepIndex, Result};

use crate::deferred::Deferred;
use crate::layer_source::LayerSource;
use crate::opened::FoundImage;
use crate::options::OpenOptions;
use crate::spool_turns::Turns;
#[cfg(feature = "remote")]
use crate::whole::ensure_whole;

/// Most layers opened at once. More than CPUs, because they mostly wait for a server.
const AT_ONCE: u64 = 8;
/// Memory that opening a layer takes besides its tree: buffers and the decoder's window.
const MEMORY: u64 = 16 << 20;
/// Time between two calls of `waiting`.
const PAUSE: Duration = Duration::from_millis(200);

type OpenedLayer = (Layer, Arc<MetadataSource>);

/// Opens the layers. Calls `waiting` at regular intervals.
///
/// # Errors
/// The first error, with the name of its layer. Other layers that are being opened are then
/// cancelled.
pub fn open(
    sources: &[LayerSource],
    options: &OpenOptions,
    observer: &Arc<Observer>,
    waiting: &mut dyn FnMut(),
) -> Result<Vec<OpenedLayer>> {
    let (next, stop) = (AtomicUsize::new(0), Arc::new(Stop::default()));
    let turns = Arc::new(Turns::default());
    let work = || -> Option<(usize, Result<OpenedLayer>)> {
        let place = next.fetch_add(1, Ordering::Relaxed);
        let source = sources.get(place).filter(|_| !stop.is_set())?;
        let blob = BlobId(u32_from(u64_from(place)));
        let opening = || open_one(source, blob, options, observer, &turns);
        Some((place, wait::until(&stop, opening)))
    };
    let fits = MemoryLimit::of_process().eighth(AT_ONCE * MEMORY) / MEMORY;
    let at_once = usize_from(fits).clamp(1, sources.len().max(1));
    let (mut opened, mut failed) = (BTreeMap::new(), None);
    std::thread::scope(|scope| {
        let (sender, results) = channel();
        for place in 0..at_once {
            let (sender, work) = (sender.clone(), &work);
            let started = threads::spawn_scoped(scope, "forerun-open", move || {
                while let Some(result) = work() {
                    // The receiver outlives the senders.
                    let _taken = sender.send(result);
                }
            });
            // Continue with fewer threads, unless none started.
            if let (0, Err(error)) = (place, started) {
                failed = Some(Error::io(0, 0, error));
            }
        }
        drop(sender);
        loop {
            match results.recv_timeout(PAUSE) {
                Ok((place, Ok(layer))) => drop(opened.insert(place, layer)),
                Ok((_, Err(error))) => {
                    // Keep the first error. Later ones may only report the cancellation.
                    failed.get_or_insert(error);
                    stop.set();
                }
                Err(RecvTimeoutError::Timeout) => waiting(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
    });
    match failed {
        Some(error) => Err(error),
        None => Ok(opened.into_values().collect()),
    }
}

/// Opens one layer, and waits until it is verified.
fn open_one(
    source: &LayerSource,
    blob: BlobId,
    options: &OpenOptions,
    observer: &Arc<Observer>,
    turns: &Arc<Turns>,
) -> Result<OpenedLayer> {
    let name: Arc<str> = source.name.as_str().into();
    let spool = turns.of_layer(options.spool.clone());
    let index = source
        .index
        .as_ref()
        .map(|index| Arc::new(Deferred::new(index)));
    let mut options = options.clone();
    options.spool.clone_from(&spool.maker);
    options.index = index.clone().map(|index| -> Arc<dyn KeepIndex> { index });
    let opened = open_driver(source, blob, &mut options, observer);
    // A failed verification explains other errors, so report it first.
    let verified = verify(source).and(opened);
    let (found, fs, note) = verified.map_err(|error| error.in_image(&name))?;
    if let Some(index) = index {
        index.keep();
    }
    let metadata = Arc::clone(&found.opened.metadata);
    if options.engine.large_blocks {
        metadata.set_ranges(fs.metadata_layout().ranges().to_vec());
    }
    let layer = Layer {
        name,
        fs,
        image: found.opened.part,
        note,
    };
    Ok((layer, metadata))
}

type OpenedDriver = (FoundImage, Arc<dyn FileSystem>, Option<&'static str>);

/// Waits until the whole layer was compared with its digest, unless that has been done.
#[cfg(feature = "remote")]
fn verify(source: &LayerSource) -> Result<()> {
    match source.server.as_ref().filter(|_| source.is_unverified) {
        Some(layer) => ensure_whole(layer),
        None => Ok(()),
    }
}

#[cfg(not(feature = "remote"))]
fn verify(_source: &LayerSource) -> Result<()> {
    Ok(())
}

/// Opens the driver of a layer, by its table of contents if possible. Also returns how the layer's
/// bytes are verified.
#[cfg(any(feature = "layouts", feature = "remote"))]
fn open_driver(
    layer: &LayerSource,
    blob: BlobId,
    options: &mut OpenOptions,
    observer: &Arc<Observer>,
) -> Result<OpenedDriver> {
    use crate::layer_source::WHOLE;

    let Some(lazy) = &layer.lazy else {
        let (found, fs, verified) = open_whole(layer, blob, options, observer)?;
        #[cfg(feature = "remote")]
        let verified = verified.or(layer.is_unverified.then_some(WHOLE));
        return Ok((found, fs, verified));
    };
    options.table = Some(lazy.table.clone());
    let opened = open_whole(layer, blob, options, observer);
    options.table = None;
    match opened {
        Ok((found, fs, verified)) => {
            #[cfg(feature = "remote")]
            if let (Some(image), Some(layout)) = (&layer.server, fs.capabilities().layout) {
                image.fetch_part_ahead(&layout.wanted_ahead());
            }
            Ok((found, fs, verified))
        }
        Err(error) if is_needless(&error, lazy) => {
            let name = &layer.name;
            tracing::info!(%error, name, "the table of contents is not used; the layer is read whole");
            (lazy.verify_whole)()?;
            let (found, fs, _) = open_whole(layer, blob, options, observer)?;
            Ok((found, fs, Some(WHOLE)))
        }
        Err(error) => Err(error),
    }
}

/// Returns whether the layer can be opened without its table of contents after this error. The
/// archive itself may be within the limits, or have a supported form; a corrupt table that no
/// manifest names proves nothing about the layer.
#[cfg(any(feature = "layouts", feature = "remote"))]
const fn is_needless(error: &Error, lazy: &crate::layer_source::LazyLayer) -> bool {
    match error {
        Error::Limit { .. } | Error::Unsupported(_) => true,
        Error::Corrupt(_) => lazy.is_claimed,
        _ => false,
    }
}

#[cfg(not(any(feature = "layouts", feature = "remote")))]
fn open_driver(
    layer: &LayerSource,
    blob: BlobId,
    options: &mut OpenOptions,
    observer: &Arc<Observer>,
) -> Result<OpenedDriver> {
    open_whole(layer, blob, options, observer)
}

fn open_whole(
    layer: &LayerSource,
    blob: BlobId,
    options: &OpenOptions,
    observer: &Arc<Observer>,
) -> Result<OpenedDriver> {
    let found = FoundImage::of_blob(&layer.source, blob, options, observer)?;
    let (cache, observer) = (options.engine.cache / 16, Arc::clone(observer));
    let fs = found.driver(options, observer, cache, true)?;
    Ok((found, fs, layer.verified))
}
