//! Opens references as sources.

mod assemble;
mod download;
mod layer;
mod soci_table;

use std::collections::HashMap;
use std::sync::Arc;

use forerun_cache::{AccessList, Cache, CacheOptions, Geometry};

use crate::error::cache_error;
use crate::image::RemoteImage;
use crate::image::access_list::{self, Listing, RecordFile};
use crate::resolve::spool::Room;
use crate::resolve::{self, Resolved, ResolvedName, remembered, unknown_length};
use crate::sidecar::{self, FoundSidecar};
use crate::{
    Identity, ImageIndex, Layout, Origin, Prefetch, Reference, RemoteBlob, RemoteError,
    RemoteOptions, Result, runtime,
};

use assemble::{assemble, start_using, start_using_with_others, tidy};
use layer::LayerFacts;
use soci_table::soci_table;

/// Opens the image that `reference` names. Requests only its layout from the servers. If they do
/// not answer, opens a cached image from the facts that the cache remembers.
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
/// Errors of the servers or the cache; an access list that cannot be read; [`RemoteError::Offline`]
/// for an image that is not in the cache if no server may be contacted.
pub fn open(reference: &Reference, options: &RemoteOptions) -> Result<Arc<RemoteImage>> {
    let cache = cache(options)?;
    let resolved = if options.offline {
        offline(&cache, reference, options)?
    } else {
        recalled(
            unknown_length::resolved(reference, options, Some(&cache), || Room::in_cache(&cache)),
            &cache,
            reference,
            options,
        )?
    };
    start_using(&cache, reference, resolved, options, LayerFacts::default())
}

#[derive(Debug)]
pub enum Opened {
    Image(Arc<RemoteImage>),
    /// The layers of a container image, lowest first: archives or images to be merged.
    Layers(Vec<Arc<RemoteImage>>),
}

/// Opens an image as [`open`] does, or all layers of a container image. Fetches no byte of the
/// layers yet.
pub fn open_all(reference: &Reference, options: &RemoteOptions) -> Result<Opened> {
    let cache = cache(options)?;
    let (found, found_sidecar) = resolved(&cache, reference, options)?;
    let layers = match found {
        Resolution::Image(image) => {
            let facts = LayerFacts::default();
            return start_using(&cache, reference, *image, options, facts).map(Opened::Image);
        }
        Resolution::Layers(layers) => layers,
    };
    let (mut lists, record) = (access_list::prefetched(options)?, RecordFile::of(options));
    let FoundSidecar { sidecar, facts } = found_sidecar;
    if options.prefetch == Prefetch::None {
        lists = sidecar.lists;
    }
    let index = options.layer_index.as_ref();
    let index = index.filter(|_| !options.require_verified);
    let index = index.map(|path| ImageIndex::read(path)).transpose()?;
    let index = index.or(Some(sidecar.index));
    let is_new = layers.iter().all(|layer| layer.memory.is_none());
    let layouts: Vec<Layout> = layers.iter().map(|layer| layer.layout.clone()).collect();
    let mut opened: HashMap<String, Arc<RemoteImage>> = HashMap::new();
    let mut images = Vec::with_capacity(layers.len());
    for mut resolved in layers {
        let identity = resolved.layout.identity.to_string();
        let image = match opened.get(&identity) {
            // A layer may occur several times; an empty one often does.
            Some(image) => Arc::clone(image),
            None => {
                let layer = by_digest(reference, &resolved.layout);
                let tables = &sidecar.tables;
                let soci = soci_table(&cache, reference, &mut resolved, tables, options);
                let (mut facts, ahead) = facts_of_layer(&resolved, options, index.as_ref());
                facts.soci = soci;
                facts.listing = Some(Listing {
                    list: access_list::find(&lists, &identity).or(ahead),
                    record: record.clone(),
                });
                start_using_with_others(&cache, &layer, resolved, options, facts)?
            }
        };
        opened.insert(identity, Arc::clone(&image));
        images.push(image);
    }
    if let Some(lowest) = images.first().map(|lowest| lowest.blob.identity()) {
        if is_new {
            tidy(&cache);
            remembered::remember_layers(&cache, reference, options, &layouts, lowest);
        }
        if let Some(facts) = &facts {
            sidecar::remembered::remember(&cache, reference, options, (facts, lowest));
        }
    }
    Ok(Opened::Layers(images))
}

/// The images that a reference names, before they are assembled.
enum Resolution {
    Image(Box<Resolved>),
    Layers(Vec<Resolved>),
}

/// Resolves `reference`, and finds the artifacts beside it if the options ask for them.
fn resolved(
    cache: &Cache,
    reference: &Reference,
    options: &RemoteOptions,
) -> Result<(Resolution, FoundSidecar)> {
    let mut found_sidecar = FoundSidecar::default();
    let mut reason = None;
    if !options.offline {
        match unknown_length::named(reference, options, cache) {
            Ok(ResolvedName::Image(image)) => return Ok((Resolution::Image(image), found_sidecar)),
            Ok(ResolvedName::Container(found, registry)) => {
                if options.referrers {
                    found_sidecar = sidecar::find(cache, reference, (&found, &registry), options);
                }
                let layers = found.layers.into_iter();
                let of_registry = |layout| resolve::of_registry(layout, Arc::clone(&registry));
                let layers = layers.map(of_registry).collect();
                return Ok((Resolution::Layers(layers), found_sidecar));
            }
            Err(error) if error.is_no_answer() => reason = Some(error),
            Err(error) => return Err(error),
        }
    }
    let found = remembered(cache, reference, options, reason)?;
    if options.referrers && matches!(found, Resolution::Layers(_)) {
        found_sidecar.sidecar = sidecar::remembered::recall(cache, reference, options);
    }
    Ok((found, found_sidecar))
}

/// Resolves a reference from the cache's remembered facts. `reason` is the error of the server, if
/// it was contacted.
fn remembered(
    cache: &Cache,
    reference: &Reference,
    options: &RemoteOptions,
    reason: Option<RemoteError>,
) -> Result<Resolution> {
    if let Some(layers) = remembered::recall_layers(cache, reference, options, reason.as_ref())? {
        return Ok(Resolution::Layers(layers));
    }
    match reason {
        None => offline(cache, reference, options),
        Some(error) => recalled(Err(error), cache, reference, options),
    }
    .map(|image| Resolution::Image(Box::new(image)))
}

/// Returns a reference to a layer by digest: a blob in the repository that `reference` names.
fn by_digest(reference: &Reference, layout: &Layout) -> Reference {
    match (reference, &layout.identity) {
        (Reference::Oci(name), Identity::Blob(digest)) => Reference::Oci(name.with_digest(*digest)),
        _ => reference.clone(),
    }
}

/// Looks up the facts about a layer without a table of contents, in the cache and in an index from
/// a file or artifact, with its access lists.
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

fn offline(cache: &Cache, reference: &Reference, options: &RemoteOptions) -> Result<Resolved> {
    let known = remembered::recall(cache, reference, None, options, None)?;
    known.ok_or_else(|| RemoteError::Offline {
        place: reference.place(),
    })
}

/// Returns the resolved image, or the cached one if no server answered.
fn recalled(
    resolved: Result<Resolved>,
    cache: &Cache,
    reference: &Reference,
    options: &RemoteOptions,
) -> Result<Resolved> {
    match resolved {
        Err(error) if error.is_no_answer() => {
            let recalled =
                remembered::recall(cache, reference, None, options, Some(error.clone()))?;
            recalled.ok_or(error)
        }
        outcome => outcome,
    }
}

/// Opens the image of `origin`, which no reference names. Its chunks are cached under the place and
/// version that the origin gives.
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

fn cache(options: &RemoteOptions) -> Result<Cache> {
    let dir = options.cache_dir().ok_or_else(|| RemoteError::Cache {
        reason: "there is no home directory for it; name a directory".to_owned(),
        is_full: false,
    })?;
    let mut settings = match options.cache_limit {
        Some(limit) => CacheOptions::with_limit(limit),
        None => CacheOptions::share_of_disk(&dir).map_err(|error| cache_error(&error))?,
    };
    settings.trust = options.trust_cache;
    Cache::open(&dir, settings).map_err(|error| cache_error(&error))
}
