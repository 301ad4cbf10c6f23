//! Layers of a container image that are used while they are fetched.
//!
//! A thread reads each layer in one pass, decodes it, and compares it with its digest at the end. The topmost come
//! first: a name in a lower layer counts only once all layers above are whole. The next one begins when nearly all
//! bytes of the one above are here, so that the link never rests.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use forerun_engine::MetadataSource;
use forerun_io::wait::{self, Stop};
use forerun_io::{BlobId, Observer, ReadAt, Unpoisoned as _, threads};
use forerun_layers::{GrowingLayers, Layer};
use forerun_remote::{RemoteError, RemoteImage};
use forerun_tar::GrowingTar;
use forerun_vfs::{Error, FileSystem as _, Result};

use crate::at_once::at_once;
use crate::deferred::Deferred;
use crate::layer_source::{LayerSource, WHOLE};
use crate::opened::FoundImage;
use crate::options::OpenOptions;
use crate::spool_turns::LayerSpool;
use crate::whole::ensure_whole;

/// Missing bytes of a layer at which the next one begins: about what is in flight.
const NEXT: u64 = 8 << 20;
/// Pause before a server is asked again that did not answer.
const PAUSE: Duration = Duration::from_secs(1);

/// A layer of which a thread reads the rest.
pub struct Growth {
    tar: Arc<GrowingTar>,
    found: FoundImage,
    server: Arc<RemoteImage>,
    name: Arc<str>,
    options: OpenOptions,
    observer: Arc<Observer>,
    index: Option<Arc<Deferred>>,
    /// Held until the layer is read.
    _spool: Option<LayerSpool>,
}

/// Begins to use a layer, if it is an archive. Reads its first bytes only.
///
/// # Errors
/// Those of reading them.
pub fn begin(
    source: &LayerSource,
    blob: BlobId,
    options: OpenOptions,
    observer: &Arc<Observer>,
) -> Result<Option<Growth>> {
    let Some(server) = &source.server else {
        return Ok(None);
    };
    let found = FoundImage::of_stored(&source.source, blob, &options, observer)?;
    let Some(found) = found else {
        return Ok(None);
    };
    let Some(head) = found.archive_head()? else {
        return Ok(None);
    };
    let len = source.source.len();
    Ok(Some(Growth {
        tar: Arc::new(GrowingTar::new(&head, len, &options.limits)),
        found,
        server: Arc::clone(server),
        name: source.name.as_str().into(),
        options,
        observer: Arc::clone(observer),
        index: None,
        _spool: None,
    }))
}

impl Growth {
    /// Returns the layer to use meanwhile.
    pub fn layer(&self) -> Layer {
        Layer {
            name: Arc::clone(&self.name),
            fs: Arc::<GrowingTar>::clone(&self.tar),
            image: Arc::clone(&self.found.opened.part),
            note: Some(WHOLE),
        }
    }

    /// Returns its source of metadata.
    pub const fn metadata(&self) -> &Arc<MetadataSource> {
        &self.found.opened.metadata
    }

    /// Returns the same with the place of its index, and its spool.
    pub fn with(self, index: Option<Arc<Deferred>>, spool: LayerSpool) -> Self {
        Self {
            index,
            _spool: Some(spool),
            ..self
        }
    }

    /// Reads all of the layer, and compares it with its digest.
    fn read(&self, order: &Arc<Order>, passed_on: &Arc<AtomicBool>) -> Result<()> {
        let begun_anew = self.server.begun_anew();
        self.server.prefetch_all();
        let source = Coming {
            inner: Arc::<MetadataSource>::clone(&self.found.opened.metadata),
            tar: Arc::clone(&self.tar),
            server: Arc::clone(&self.server),
            name: Arc::clone(&self.name),
            after_most: {
                let order = Arc::clone(order);
                Box::new(move || order.begin_next_if_free())
            },
            passed_on: Arc::clone(passed_on),
        };
        let cache = self.options.engine.cache / 16;
        let observer = Arc::clone(&self.observer);
        let mut with = self.found.open_with(&self.options, observer, cache, true)?;
        with.metadata = Arc::new(source);
        let read = self.tar.read(&with);
        // A stream that cannot be read is mostly one of other bytes: that error comes first.
        let verified = match &read {
            Err(error) if is_given_up(error) => Ok(()),
            _ => self.verify(),
        };
        let read = verified.and(read)?;
        if self.server.begun_anew() != begun_anew {
            let error = "the cache had wrong bytes of the layer while it was read";
            return Err(Error::io(0, 0, io::Error::other(error)));
        }
        if let Some(index) = &self.index {
            index.keep();
        }
        self.tar.complete(read);
        Ok(())
    }

    /// Compares the layer with its digest, as soon as all of it is here.
    fn verify(&self) -> Result<()> {
        loop {
            let Err(error) = ensure_whole(&self.server) else {
                return Ok(());
            };
            match RemoteError::within(&error) {
                Some(cause) if cause.is_no_answer() => {
                    pause(&self.tar, &self.name, &cause.to_string())
                        .map_err(|given_up| Error::io(0, 0, given_up))?;
                }
                _ => return Err(error),
            }
        }
    }
}

fn is_given_up(error: &Error) -> bool {
    matches!(error, Error::Io { .. }) && wait::allowed().is_err()
}

/// The layers that are still to be read, and the threads that read some.
struct Order {
    /// Topmost first.
    left: Mutex<VecDeque<Growth>>,
    /// All of them, to fail those that others wait for.
    all: Vec<Arc<GrowingTar>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    running: AtomicUsize,
    most: usize,
    /// Layers that are not whole yet.
    missing: AtomicUsize,
    stop: Arc<Stop>,
    merged: Arc<GrowingLayers>,
}

/// The threads that read layers. Dropped, it ends them.
pub struct Streaming(Arc<Order>);

impl Streaming {
    /// Begins to read layers, which are in the order of the merge: the lowest first.
    pub fn start(mut growths: Vec<Growth>, merged: &Arc<GrowingLayers>) -> Self {
        growths.reverse();
        let order = Arc::new(Order {
            all: growths
                .iter()
                .map(|growth| Arc::clone(&growth.tar))
                .collect(),
            threads: Mutex::default(),
            running: AtomicUsize::new(0),
            most: at_once(),
            missing: AtomicUsize::new(growths.len()),
            left: Mutex::new(growths.into()),
            stop: Arc::default(),
            merged: Arc::clone(merged),
        });
        order.begin_next_if_free();
        Self(order)
    }

    /// Returns whether readers may have to wait for a layer.
    pub fn is_slow(&self) -> bool {
        !self.0.merged.is_settled()
    }
}

impl Drop for Streaming {
    fn drop(&mut self) {
        self.0.stop.set();
        self.0.left.lock().unpoisoned().clear();
        loop {
            let Some(thread) = self.0.threads.lock().unpoisoned().pop() else {
                break;
            };
            let _its_panic_was_printed = thread.join();
        }
    }
}

impl Order {
    /// Begins with the next layer, unless enough are being read. Returns whether it did.
    fn begin_next_if_free(self: &Arc<Self>) -> bool {
        if self.running.fetch_add(1, Ordering::AcqRel) >= self.most {
            self.running.fetch_sub(1, Ordering::AcqRel);
            return false;
        }
        self.begin_next();
        true
    }

    /// Begins with the next layer, for which a place was taken.
    fn begin_next(self: &Arc<Self>) {
        let next = self.left.lock().unpoisoned().pop_front();
        let Some(growth) = next.filter(|_| !self.stop.is_set()) else {
            self.running.fetch_sub(1, Ordering::AcqRel);
            return;
        };
        let (order, tar) = (Arc::clone(self), Arc::clone(&growth.tar));
        match threads::spawn("forerun-layer", move || order.run(growth)) {
            Ok(thread) => self.threads.lock().unpoisoned().push(thread),
            Err(error) => {
                self.running.fetch_sub(1, Ordering::AcqRel);
                let error = Error::io(0, 0, error);
                tar.fail(error.clone());
                self.fail(&error);
            }
        }
    }

    /// Reads a layer, and begins with the next one if that has not begun.
    fn run(self: &Arc<Self>, growth: Growth) {
        let passed_on = Arc::new(AtomicBool::new(false));
        let read = wait::until(&self.stop, || growth.read(self, &passed_on));
        let (name, tar) = (Arc::clone(&growth.name), Arc::clone(&growth.tar));
        // Ends the turn of its spool.
        drop(growth);
        match read {
            Ok(()) => {
                if self.missing.fetch_sub(1, Ordering::AcqRel) == 1 {
                    // Those that ask get the error.
                    let settled = wait::until(&self.stop, || self.merged.settle());
                    match settled {
                        Ok(()) => tracing::info!("all layers are here and verified"),
                        Err(error) => tracing::warn!(%error, "the layers cannot be merged"),
                    }
                }
            }
            Err(error) => {
                let error = error.in_image(&name);
                if !self.stop.is_set() {
                    tracing::error!("{error}; the image is not served from now on");
                    self.fail(&error);
                }
                tar.fail(error);
            }
        }
        match passed_on.load(Ordering::Acquire) {
            // Its place goes to no other.
            true => {
                self.running.fetch_sub(1, Ordering::AcqRel);
            }
            false => self.begin_next(),
        }
    }

    /// Fails the image: one of its layers is not what it should be.
    fn fail(&self, error: &Error) {
        self.merged.fail(error.clone());
        self.stop.set();
        self.left.lock().unpoisoned().clear();
        for tar in &self.all {
            tar.fail(error.clone());
        }
    }
}

/// The bytes of a layer as they come. While its server does not answer, readers get errors, and the pass goes on
/// later.
struct Coming {
    inner: Arc<dyn ReadAt>,
    tar: Arc<GrowingTar>,
    server: Arc<RemoteImage>,
    name: Arc<str>,
    /// Called until it returns true, once most of the layer is here.
    after_most: Box<dyn Fn() -> bool + Send + Sync>,
    /// Set once the next layer has begun in its place.
    passed_on: Arc<AtomicBool>,
}

impl Coming {
    fn pass_on(&self) {
        if self.passed_on.load(Ordering::Acquire) {
            return;
        }
        let blob = self.server.blob();
        if blob.local_bytes().saturating_add(NEXT) >= self.server.len() && (self.after_most)() {
            self.passed_on.store(true, Ordering::Release);
        }
    }
}

impl ReadAt for Coming {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        loop {
            let Err(error) = self.inner.read_exact_at(offset, out) else {
                if self.tar.is_stalled() {
                    tracing::info!("{}: it comes again", self.name);
                    self.tar.stall(None);
                }
                self.pass_on();
                return Ok(());
            };
            wait::allowed()?;
            let is_late = error.kind() == io::ErrorKind::TimedOut;
            let is_silent = RemoteError::within(&error).is_some_and(RemoteError::is_no_answer);
            if !is_late && !is_silent {
                return Err(error);
            }
            pause(&self.tar, &self.name, &error.to_string())?;
            self.server.prefetch_all();
        }
    }
}

/// Tells readers that nothing comes, and waits before the next try.
fn pause(tar: &GrowingTar, name: &Arc<str>, reason: &str) -> io::Result<()> {
    if !tar.is_stalled() {
        tracing::warn!("{name}: {reason}; it is tried again");
    }
    let error = io::Error::new(io::ErrorKind::TimedOut, reason.to_string());
    tar.stall(Some(Error::io(0, 0, error).in_image(name)));
    let mut left = PAUSE;
    while !left.is_zero() {
        wait::allowed()?;
        std::thread::sleep(left.min(wait::SLICE));
        left = left.saturating_sub(wait::SLICE);
    }
    Ok(())
}
