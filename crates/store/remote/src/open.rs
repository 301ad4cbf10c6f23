//! Opens references as sources.

use std::collections::HashMap;
use std::sync::Arc;

use forerun_cache::{
    AccessList, BlobSpec, Cache, CacheError, CacheOptions, CachedBlob, ChunkTable,
};
use forerun_cache::{Geometry, TableTrust, VerifiedTable};
use forerun_io::FileSource;

use crate::beside::{self, Beside};
use crate::fetch::{Fetcher, Patience};
use crate::image::RemoteImage;
use crate::layer_table::{self, LayerFacts};
use crate::memory;
use crate::outage::Outage;
use crate::record::{self, Listing, RecordFile};
use crate::resolve::{self, Resolved, ResolvedName};
use crate::scheduler::{Scheduler, Work};
use crate::spool::Room;
use crate::stats::Counters;
use crate::table::TableSource;
use crate::{
    DownloadReport, Identity, ImageIndex, Layout, Origin, Prefetch, Reference, RemoteBlob,
    RemoteError, RemoteOptions, Result, download, runtime, unmeasured,
};

/// Opens the image that `reference` names. Asks its servers for its layout only. Where they do not
/// answer, an image that is in the cache is opened from memory.
///
/// ```
/// use forerun_io::ReadAt;
/// use forerun_remote::{Reference, RemoteOptions, open};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let files = forerun_testkit::temp_dir("open-example");
/// # std::fs::write(files.path().join("image"), [7; 100_000])?;
/// # let Some(server) = forerun_testkit_servers::Nginx::serve(files.path()) else {
/// #     return Ok(());
/// # };
/// # let (url, cache) = (server.url_of("image"), forerun_testkit::temp_dir("open-cache"));
/// let reference = Reference::parse(&url)?;
/// let options = RemoteOptions {
///     cache_dir: Some(cache.path().to_path_buf()),
///     ..RemoteOptions::default()
/// };
/// let image = open(&reference, &options)?;
/// let mut head = [0; 512];
/// image.read_exact_at(0, &mut head)?;
/// # assert_eq!((image.len(), head), (100_000, [7; 512]));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Those of the servers; a cache that cannot be used; an access list that cannot be read;
/// [`RemoteError::Offline`] for an image that is not in the cache where no server may be asked.
pub fn open(reference: &Reference, options: &RemoteOptions) -> Result<Arc<RemoteImage>> {
    let cache = cache(options)?;
    let resolved = match options.offline {
        true => offline(&cache, reference, options)?,
        false => recalled(
            unmeasured::resolved(reference, options, Some(&cache), || Room::in_cache(&cache)),
            &cache,
            reference,
            options,
        )?,
    };
    start_using(&cache, reference, resolved, options, LayerFacts::default())
}

/// The open image, or images, that a reference names.
#[derive(Debug)]
pub enum Opened {
    /// One image.
    Image(Arc<RemoteImage>),
    /// The layers of a container image, the lowest first: archives, or images, that are merged.
    Layers(Vec<Arc<RemoteImage>>),
}

/// Opens what `reference` names, as [`open`] does: an image, or all layers of a container image. Nothing of the
/// layers is fetched yet.
///
/// # Errors
/// Those of [`open`].
pub fn open_all(reference: &Reference, options: &RemoteOptions) -> Result<Opened> {
    let cache = cache(options)?;
    let mut beside = Beside::default();
    let found = match options.offline {
        true => remembered(&cache, reference, options, None)?,
        false => match unmeasured::named(reference, options, &cache) {
            Ok(ResolvedName::Image(image)) => Resolution::Image(image),
            Ok(ResolvedName::Container(found, registry)) => {
                if options.referrers {
                    beside = beside::find(reference, (&found, &registry), options);
                }
                let layers = found.layers.into_iter();
                let of_registry = |layout| resolve::of_registry(layout, Arc::clone(&registry));
                Resolution::Layers(layers.map(of_registry).collect())
            }
            Err(error) if error.is_no_answer() => {
                remembered(&cache, reference, options, Some(error))?
            }
            Err(error) => return Err(error),
        },
    };
    let layers = match found {
        Resolution::Image(image) => {
            let facts = LayerFacts::default();
            return start_using(&cache, reference, *image, options, facts).map(Opened::Image);
        }
        Resolution::Layers(layers) => layers,
    };
    let (mut lists, record) = (record::prefetched(options)?, RecordFile::of(options));
    if options.prefetch == Prefetch::None {
        lists = beside.lists;
    }
    let index = options.layer_index.as_ref();
    let index = index.filter(|_| !options.require_verified);
    let index = index.map(|path| ImageIndex::read(path)).transpose()?;
    let index = index.or(Some(beside.index));
    let is_new = layers.iter().all(|layer| layer.memory.is_none());
    let layouts: Vec<Layout> = layers.iter().map(|layer| layer.layout.clone()).collect();
    let mut opened: HashMap<String, Arc<RemoteImage>> = HashMap::new();
    let mut images = Vec::with_capacity(layers.len());
    for resolved in layers {
        let identity = resolved.layout.identity.to_string();
        let image = match opened.get(&identity) {
            // A layer may come several times: an empty one often does.
            Some(image) => Arc::clone(image),
            None => {
                let layer = by_digest(reference, &resolved.layout);
                let (mut facts, ahead) = facts_of_layer(&resolved, options, index.as_ref());
                facts.listing = Some(Listing {
                    list: record::find(&lists, &identity).or(ahead),
                    record: record.clone(),
                });
                start_using(&cache, &layer, resolved, options, facts)?
            }
        };
        opened.insert(identity, Arc::clone(&image));
        images.push(image);
    }
    if is_new {
        memory::remember_layers(&cache, reference, options, &layouts);
    }
    Ok(Opened::Layers(images))
}

/// The images that a reference stands for, before they are in use.
enum Resolution {
    Image(Box<Resolved>),
    Layers(Vec<Resolved>),
}

/// Returns what is in the cache. `reason` is why the server did not answer, if it was asked.
fn remembered(
    cache: &Cache,
    reference: &Reference,
    options: &RemoteOptions,
    reason: Option<RemoteError>,
) -> Result<Resolution> {
    if let Some(layers) = memory::recall_layers(cache, reference, options, reason.as_ref())? {
        return Ok(Resolution::Layers(layers));
    }
    match reason {
        None => offline(cache, reference, options),
        Some(error) => recalled(Err(error), cache, reference, options),
    }
    .map(|image| Resolution::Image(Box::new(image)))
}

/// Returns the name of a layer: the blob in the repository that `reference` names.
fn by_digest(reference: &Reference, layout: &Layout) -> Reference {
    match (reference, &layout.identity) {
        (Reference::Oci(name), Identity::Blob(digest)) => Reference::Oci(name.with_digest(*digest)),
        _ => reference.clone(),
    }
}

/// Looks up what the cache has kept of a layer without a table of contents, and what an index from elsewhere has of it:
/// with the list of what is read first.
fn facts_of_layer(
    layer: &Resolved,
    options: &RemoteOptions,
    index: Option<&ImageIndex>,
) -> (LayerFacts, Option<AccessList>) {
    let size = layer.chunk_size.unwrap_or(options.chunk_len);
    let geometry = Geometry::new(layer.layout.len, size);
    match (&layer.layout, options.cache_dir(), geometry) {
        (
            Layout {
                identity: Identity::Blob(digest),
                contents: None,
                ..
            },
            Some(cache),
            Ok(geometry),
        ) => {
            let index = index.and_then(|index| index.layer(*digest, geometry));
            let facts = LayerFacts::kept(&cache, *digest, geometry).or_named(index);
            let ahead = index.and_then(|index| index.accesses.clone());
            (facts, ahead.filter(|_| options.prefetch == Prefetch::None))
        }
        _ => (LayerFacts::default(), None),
    }
}

/// Returns an image that is in the cache.
fn offline(cache: &Cache, reference: &Reference, options: &RemoteOptions) -> Result<Resolved> {
    let known = memory::recall(cache, reference, options, None)?;
    known.ok_or_else(|| RemoteError::Offline {
        place: reference.place(),
    })
}

/// Returns what was resolved; an image that is in the cache where no server has answered.
fn recalled(
    resolved: Result<Resolved>,
    cache: &Cache,
    reference: &Reference,
    options: &RemoteOptions,
) -> Result<Resolved> {
    match resolved {
        Err(error) if error.is_no_answer() => {
            let recalled = memory::recall(cache, reference, options, Some(error.clone()))?;
            recalled.ok_or(error)
        }
        outcome => outcome,
    }
}

/// Puts the source of a resolved reference together, and does what using it begins with.
fn start_using(
    cache: &Cache,
    reference: &Reference,
    resolved: Resolved,
    options: &RemoteOptions,
    of_layer: LayerFacts,
) -> Result<Arc<RemoteImage>> {
    if resolved.memory.is_some() {
        return assemble(cache, Some(reference), resolved, options, of_layer);
    }
    let facts = resolved.facts.clone();
    let is_spooled = resolved.is_spooled;
    let whole = resolved
        .layout
        .is_sent_whole()
        .then(|| resolved.layout.clone());
    let image = assemble(cache, Some(reference), resolved, options, of_layer)?;
    if let Some(layout) = whole {
        let mut how = options.clone();
        if is_spooled {
            how.download = DownloadReport::default();
        }
        download::download(cache, &layout, &image, &how)?;
        start(&image, options, None);
    }
    // Only now: the image is in use and is not evicted.
    if let Err(error) = cache.tidy() {
        tracing::warn!(%error, "the cache could not be looked after");
    }
    if let Some(facts) = facts {
        memory::remember(cache, reference, &facts, &image.identity);
    }
    Ok(image)
}

/// Opens the image that `origin` has, which no reference names. Its chunks are kept under the place and
/// the version that the origin gives.
///
/// # Errors
/// Those of the origin; a cache that cannot be used; an access list that cannot be read.
pub fn open_origin(origin: Arc<dyn Origin>, options: &RemoteOptions) -> Result<Arc<RemoteImage>> {
    let cache = cache(options)?;
    let description = runtime::wait_for(origin.describe())?;
    let place = origin.place().to_owned();
    let identity = Identity::Version {
        url: place.clone(),
        version: description.version.clone().unwrap_or_default(),
    };
    let blob = RemoteBlob {
        description,
        mirrors: vec![origin],
    };
    let layout = Layout::single(place, blob, identity);
    let resolved = Resolved::new(layout, None);
    assemble(&cache, None, resolved, options, LayerFacts::default())
}

/// Puts together the source of a resolved reference.
fn assemble(
    cache: &Cache,
    reference: Option<&Reference>,
    resolved: Resolved,
    options: &RemoteOptions,
    of_layer: LayerFacts,
) -> Result<Arc<RemoteImage>> {
    let Resolved {
        layout,
        registry,
        chunk_size,
        memory,
        facts: _,
        is_spooled: _,
    } = resolved;
    let counters = Arc::new(Counters::default());
    let patience = patience(options);
    let LayerFacts {
        table,
        keep,
        listing,
        archive,
    } = of_layer;
    let is_layer = listing.is_some();
    // Read before anything is fetched, so that a bad list fails early.
    let identity = layout.identity.to_string();
    let Listing { list, record } = match listing {
        Some(listing) => listing,
        None => Listing::of_image(options, &identity)?,
    };
    let is_sent_whole = layout.is_sent_whole();
    let chunk_size = chunk_size.unwrap_or(options.chunk_len);
    let patient = (patience, &counters);
    let (blob, table) = cached(cache, &layout, chunk_size, patient, table)?;
    let geometry = blob.geometry();
    let chunk_len = geometry.chunk_size();
    let scheduler = Scheduler::new(Work {
        place: layout.place.clone(),
        blob: Arc::clone(&blob),
        fetcher: Fetcher::new(layout.parts, chunk_len, patience, Arc::clone(&counters)),
        table,
        digest: layout.identity.digest(),
        keep,
        requests: options.requests,
        window: options.window,
        patience: options.stall,
        counters: Arc::clone(&counters),
        registry,
    })?;
    let recorder = record.map(|file| file.recorder(&identity, geometry));
    if let Some(recorder) = recorder.as_ref().filter(|_| !is_layer) {
        recorder.begin();
    }
    let local = data_file(&blob)?;
    let image = Arc::new(RemoteImage {
        reference: reference.cloned(),
        place: layout.place,
        identity: layout.identity,
        format: layout.format,
        contents: layout.contents,
        archive,
        blob,
        scheduler,
        counters,
        recorder,
        patience,
        readahead: options.readahead,
        local,
        memory,
        outage: Outage::default(),
    });
    // An image that is sent whole is downloaded first.
    if !is_sent_whole {
        start(&image, options, list);
    }
    Ok(image)
}

const fn patience(options: &RemoteOptions) -> Patience {
    Patience {
        timeout: options.timeout,
        stall: options.stall,
        retries: options.retries,
    }
}

/// Opens the data file of a blob once more, for hints to the kernel.
fn data_file(blob: &CachedBlob) -> Result<FileSource> {
    let file = blob.data_file().try_clone().and_then(FileSource::from_file);
    file.map_err(|error| RemoteError::Cache {
        reason: error.to_string(),
    })
}

/// Starts what `options` ask for before the first read.
fn start(image: &RemoteImage, options: &RemoteOptions, list: Option<AccessList>) {
    image.scheduler.finish_if_complete();
    if !image.blob.is_complete() {
        image.scheduler.warm_table();
    }
    if options.prefetch == Prefetch::All {
        image.prefetch_all();
    }
    if let Some(list) = list {
        image.prefetch(&list);
    }
}

fn cache(options: &RemoteOptions) -> Result<Cache> {
    let dir = options.cache_dir().ok_or_else(|| RemoteError::Cache {
        reason: "there is no home directory to keep it in; name one".to_owned(),
    })?;
    let mut settings = match options.cache_limit {
        Some(limit) => CacheOptions::with_limit(limit),
        None => CacheOptions::share_of_disk(&dir).map_err(|error| cache_error(&error))?,
    };
    settings.trust = options.trust_cache;
    Cache::open(&dir, settings).map_err(|error| cache_error(&error))
}

/// Opens the image's part of the cache, and the source of its table.
fn cached(
    cache: &Cache,
    layout: &Layout,
    mut chunk_size: u32,
    (patience, counters): (Patience, &Arc<Counters>),
    of_layer: Option<(ChunkTable, TableTrust)>,
) -> Result<(Arc<CachedBlob>, Option<Arc<TableSource>>)> {
    let mut source = None;
    let (mut table, mut trust) = (None, TableTrust::Proven);
    if let Some((made, trusted)) = of_layer {
        table = Some(layer_table::verified(made, &layout.place)?);
        trust = trusted;
    }
    if let Some(proof) = &layout.table {
        chunk_size = proof.chunk_size;
        let geometry =
            Geometry::new(layout.len, chunk_size).map_err(|error| RemoteError::Refused {
                place: layout.place.clone(),
                reason: error.to_string(),
            })?;
        let from = Arc::new(TableSource::new(proof, patience, Arc::clone(counters)));
        let over: Arc<TableSource> = Arc::clone(&from);
        let verified = VerifiedTable::new(over, geometry, proof.root);
        let verified = verified.map_err(|error| RemoteError::Refused {
            place: layout.place.clone(),
            reason: error.to_string(),
        })?;
        source = Some(from);
        table = Some(Arc::new(verified));
    }
    let blob = cache.blob(BlobSpec {
        identity: layout.identity.to_string(),
        len: layout.len,
        chunk_size,
        table,
        trust,
        label: layout.place.clone(),
        temporary: layout.is_unversioned(),
    });
    Ok((blob.map_err(|error| cache_error(&error))?, source))
}

fn cache_error(error: &CacheError) -> RemoteError {
    crate::scheduler::cache_error(error)
}
