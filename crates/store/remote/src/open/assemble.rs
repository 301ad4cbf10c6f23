//! Assembles the source of a resolved reference: its cached blob, scheduler and table.

use std::sync::Arc;

use forerun_cache::{
    AccessList, BlobSpec, Cache, CachedBlob, ChunkTable, Digest, Geometry, TableTrust,
    VerifiedTable,
};
use forerun_io::FileSource;

use crate::error::cache_error;
use crate::fetch::chunk_table::TableSource;
use crate::fetch::counters::Counters;
use crate::fetch::failed_reads::Outage;
use crate::fetch::scheduler::{Scheduler, Work};
use crate::fetch::{Fetcher, Patience, layer_digests};
use crate::image::RemoteImage;
use crate::image::access_list::Listing;
use crate::open::download;
use crate::open::layer::LayerFacts;
use crate::resolve::{Resolved, remembered};
use crate::{DownloadReport, Layout, Prefetch, Reference, RemoteError, RemoteOptions, Result};

/// Assembles the source of a resolved reference, starts the fetches that the options ask for, and
/// shrinks the cache to its limit.
pub fn start_using(
    cache: &Cache,
    reference: &Reference,
    resolved: Resolved,
    options: &RemoteOptions,
    of_layer: LayerFacts,
) -> Result<Arc<RemoteImage>> {
    let is_from_memory = resolved.memory.is_some();
    let image = start_using_with_others(cache, reference, resolved, options, of_layer)?;
    if !is_from_memory {
        tidy(cache);
    }
    Ok(image)
}

/// Evicts images until the cache is below its limit. Images in use are not evicted, so call this
/// when all images to be opened together are in use.
pub fn tidy(cache: &Cache) {
    if let Err(error) = cache.tidy() {
        tracing::warn!(%error, "the cache could not be cleaned");
    }
}

/// Assembles one of several images that are used together. The caller [shrinks](tidy) the cache
/// once all are in use.
pub fn start_using_with_others(
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
    if let Some(facts) = facts {
        let (contents, key) = (image.contents.as_ref(), image.blob.identity());
        remembered::remember(cache, reference, contents, &facts, key);
    }
    Ok(image)
}

pub fn assemble(
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
    let proof = of_layer.proof(layout.contents.as_ref());
    let LayerFacts {
        table,
        keep,
        listing,
        archive,
        soci,
    } = of_layer;
    let is_layer = listing.is_some();
    // Reads the list before anything is fetched, so that a bad list fails early.
    let identity = layout.identity.to_string();
    let Listing { list, record } = match listing {
        Some(listing) => listing,
        None => Listing::of_image(options, &identity)?,
    };
    let is_sent_whole = layout.is_sent_whole();
    let chunk_size = chunk_size.unwrap_or(options.chunk_len);
    let patient = (patience, &counters);
    let (blob, table) = cached(
        cache,
        (proof, is_layer),
        &layout,
        chunk_size,
        patient,
        table,
    )?;
    let geometry = blob.geometry();
    let chunk_len = geometry.chunk_size();
    let scheduler = Scheduler::new(Work {
        place: layout.place.clone(),
        blob: Arc::clone(&blob),
        fetcher: Fetcher::new(layout.parts, chunk_len, patience, Arc::clone(&counters)),
        table,
        digest: layout.identity.digest(),
        is_layer,
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
        soci,
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
    // An image whose server sends only whole files is downloaded first.
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

/// Opens a second descriptor of a blob's data file, for hints to the kernel.
fn data_file(blob: &CachedBlob) -> Result<FileSource> {
    let file = blob.data_file().try_clone().and_then(FileSource::from_file);
    file.map_err(|error| RemoteError::Cache {
        reason: error.to_string(),
        is_full: false,
    })
}

/// Starts the fetches that `options` ask for before the first read.
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

fn cached(
    cache: &Cache,
    (proof, is_layer): (Option<Digest>, bool),
    layout: &Layout,
    mut chunk_size: u32,
    (patience, counters): (Patience, &Arc<Counters>),
    of_layer: Option<(ChunkTable, TableTrust)>,
) -> Result<(Arc<CachedBlob>, Option<Arc<TableSource>>)> {
    let mut source = None;
    let (mut table, mut trust) = (None, TableTrust::Proven);
    if let Some((made, trusted)) = of_layer {
        table = Some(layer_digests::verified(made, &layout.place)?);
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
    let mut by_index = None;
    let mut identity = layout.identity.by_table(proof);
    if let (Some(digest), true) = (layout.identity.digest(), is_layer) {
        let name = format!("indexed {digest}");
        let plain = layout.identity.to_string();
        if trust == TableTrust::Made && cache.is_whole(&plain, digest) {
            identity = plain;
        } else if proof.is_none() {
            identity = whole_copy(cache, &name, layout, (digest, chunk_size)).unwrap_or(identity);
        } else if trust == TableTrust::Claimed {
            by_index = Some(name);
        }
    }
    let blob = cache.blob(BlobSpec {
        identity,
        len: layout.len,
        chunk_size,
        table,
        trust,
        label: layout.place.clone(),
        temporary: layout.is_unversioned(),
    });
    let blob = blob.map_err(|error| cache_error(&error))?;
    if let Some(name) = by_index
        && let Err(error) = cache.remember(&name, blob.identity(), &[])
    {
        tracing::debug!(%error, "without its index, a layer is fetched again");
    }
    Ok((blob, source))
}

/// Returns the cache name of a layer that was fetched with an index from a file or artifact, if the
/// whole layer was found to have its digest. In that case the index has the right chunk digests, so
/// no process that uses it can store wrong chunks.
fn whole_copy(
    cache: &Cache,
    name: &str,
    layout: &Layout,
    (digest, chunk_size): (Digest, u32),
) -> Option<String> {
    let known = cache.recall(name)?;
    let shape = (known.geometry.len(), known.geometry.chunk_size());
    if shape != (layout.len, chunk_size) || !layout.identity.is_named(&known.identity) {
        return None;
    }
    if !cache.is_whole(&known.identity, digest) {
        let copy = cache.blob(BlobSpec {
            identity: known.identity.clone(),
            len: layout.len,
            chunk_size,
            table: None,
            trust: TableTrust::Proven,
            label: layout.place.clone(),
            temporary: false,
        });
        copy.ok()?.verify_whole(digest).ok()?;
    }
    Some(known.identity)
}
