//! Several images as one tree.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use forerun_engine::{MetadataSource, Reader};
use forerun_io::{BlobId, Counted, Observer, Pattern, ReadAt, u64_from};
use forerun_layers::{LAYERS_MAX, Layer, Layers};
use forerun_vfs::{Bound, Error, FileSystem, KeepIndex, Result};

use crate::image::Image;
use crate::opened::FoundImage;
use crate::options::OpenOptions;

/// Least budget for the metadata of one layer, as it is stored and decoded.
const LEAST_CACHE: u64 = 256 << 10;

/// How a layer is verified whose digest was compared before its first byte was used.
#[cfg(feature = "remote")]
pub const WHOLE: &str = "verified as a whole";
/// How a layer is verified that is read by a table of contents.
#[cfg(feature = "remote")]
pub const BY_CONTENTS: &str = "each part verified by its table of contents";

/// One of several images that are opened as one tree.
pub struct LayerSource {
    /// Its name in errors.
    pub name: String,
    /// The image, or archive.
    pub source: Arc<dyn ReadAt>,
    /// Keeps the index of a compressed archive for the next opening.
    pub index: Option<Arc<dyn KeepIndex>>,
    /// How its bytes are verified, for reports.
    pub verified: Option<&'static str>,
    /// The table of contents by which it is read: then parts of it are fetched when they are wanted.
    #[cfg(feature = "remote")]
    pub lazy: Option<LazyLayer>,
}

/// A layer at a server that is read by a table of contents.
#[cfg(feature = "remote")]
#[derive(Clone, Debug)]
pub struct LazyLayer {
    /// The table.
    pub table: forerun_vfs::ProvenTable,
    /// The layer.
    pub image: Arc<forerun_remote::RemoteImage>,
}

impl std::fmt::Debug for LayerSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LayerSource")
            .field("name", &self.name)
            .field("len", &self.source.len())
            .finish_non_exhaustive()
    }
}

impl LayerSource {
    /// Creates one without an index.
    #[must_use]
    pub fn new(name: impl Into<String>, source: Arc<dyn ReadAt>) -> Self {
        Self {
            name: name.into(),
            source,
            index: None,
            verified: None,
            #[cfg(feature = "remote")]
            lazy: None,
        }
    }
}

/// Opens the images in these sources as one. The lowest is first.
///
/// # Errors
/// Those of opening one image, with its name; [`Error::Unsupported`] for options of one image, and for layers
/// that cannot be merged.
pub fn open(sources: Vec<LayerSource>, options: &OpenOptions) -> Result<Image> {
    refuse(options)?;
    let count = u64_from(sources.len());
    if sources.len() > LAYERS_MAX {
        let most = u64_from(LAYERS_MAX);
        return Err(Error::limit(Bound::Other, "number of layers", most));
    }
    let observer = Arc::new(Observer::new(options.events.clone()));
    // All layers together have the budget of one image.
    let mut of_layer = options.clone();
    of_layer.engine.cache = (options.engine.cache / count.max(1)).max(LEAST_CACHE * 16);
    let (mut layers, mut metadata) = (Vec::new(), Vec::new());
    for (layer, blob) in sources.into_iter().zip(0..) {
        let name: Arc<str> = layer.name.as_str().into();
        of_layer.index.clone_from(&layer.index);
        let opened = open_layer(&name, &layer, BlobId(blob), &mut of_layer, &observer);
        let (layer, source) = opened.map_err(|error| error.in_image(&name))?;
        layers.push(layer);
        metadata.push(source);
    }
    let images: Vec<_> = layers
        .iter()
        .map(|layer| Arc::clone(&layer.image))
        .collect();
    let fs = Layers::new(layers, &options.limits)?;
    let (Some((lowest, upper)), Some(metadata)) =
        (images.split_first(), metadata.into_iter().next())
    else {
        return Err(Error::Unsupported("a stack of no layers".to_string()));
    };
    options.engine.log_memory_use();
    let lowest = Lowest {
        image: Arc::clone(lowest),
        upper: upper.to_vec(),
    };
    let source_len = images.iter().map(|image| image.len());
    Ok(Image {
        name: None,
        format: None,
        container: None,
        offset: 0,
        source_len: source_len.fold(0, u64::saturating_add),
        metadata: Arc::clone(&metadata),
        reader: Reader::new(
            Arc::new(fs),
            Counted::new(Arc::new(lowest), BlobId::IMAGE, observer),
            metadata,
            options.engine.clone(),
            options.limits.clone(),
        ),
    })
}

/// Opens one layer, and returns its source of metadata as well.
fn open_layer(
    name: &Arc<str>,
    layer: &LayerSource,
    blob: BlobId,
    options: &mut OpenOptions,
    observer: &Arc<Observer>,
) -> Result<(Layer, Arc<MetadataSource>)> {
    let (found, fs, verified) = open_driver(layer, blob, options, observer)?;
    let metadata = Arc::clone(&found.opened.metadata);
    if options.engine.large_blocks {
        metadata.set_ranges(fs.metadata_layout().ranges().to_vec());
    }
    let layer = Layer {
        name: Arc::clone(name),
        fs,
        image: found.opened.part,
        note: verified,
    };
    Ok((layer, metadata))
}

type OpenedDriver = (FoundImage, Arc<dyn FileSystem>, Option<&'static str>);

/// Opens the driver of a layer: by its table of contents, if it has one that is trusted. Returns how its bytes are
/// verified as well.
#[cfg(feature = "remote")]
fn open_driver(
    layer: &LayerSource,
    blob: BlobId,
    options: &mut OpenOptions,
    observer: &Arc<Observer>,
) -> Result<OpenedDriver> {
    let Some(lazy) = &layer.lazy else {
        return open_whole(layer, blob, options, observer);
    };
    options.table = Some(lazy.table);
    let opened = open_whole(layer, blob, options, observer);
    options.table = None;
    match opened {
        Ok((found, fs, verified)) => {
            lazy.image.fetch_part_ahead(&fs.wanted_ahead());
            Ok((found, fs, verified))
        }
        // The archive itself may be within the limits, or have another form.
        Err(error @ (Error::Limit { .. } | Error::Unsupported(_))) => {
            let name = &layer.name;
            tracing::info!(%error, name, "the table of contents is not used; the layer is fetched whole");
            let whole = lazy.image.ensure_whole(&mut || ());
            whole.map_err(|error| Error::io(0, 0, io::Error::other(error)))?;
            let (found, fs, _) = open_whole(layer, blob, options, observer)?;
            Ok((found, fs, Some(WHOLE)))
        }
        Err(error) => Err(error),
    }
}

/// Opens the driver of a layer.
#[cfg(not(feature = "remote"))]
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

/// Refuses options that say something of one image.
fn refuse(options: &OpenOptions) -> Result<()> {
    let set = [
        (options.offset > 0, "an offset"),
        (options.size.is_some(), "a size"),
        (options.format.is_some(), "a format"),
        (!options.devices.is_empty(), "devices"),
        (options.digest.is_some(), "a digest"),
        (options.index.is_some(), "an index"),
        (options.table.is_some(), "a table of contents"),
    ];
    match set.into_iter().find(|(is_set, _)| *is_set) {
        Some((_, what)) => Err(Error::Unsupported(format!("{what} for several layers"))),
        None => Ok(()),
    }
}

/// The image of the lowest layer, which the engine takes for that of all: it is slow where any is.
struct Lowest {
    image: Arc<dyn ReadAt>,
    upper: Vec<Arc<dyn ReadAt>>,
}

impl ReadAt for Lowest {
    fn len(&self) -> u64 {
        self.image.len()
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.image.read_exact_at(offset, out)
    }

    fn read_ahead_at(&self, offset: u64, out: &mut [u8], pattern: Pattern) -> io::Result<()> {
        self.image.read_ahead_at(offset, out, pattern)
    }

    fn will_need(&self, range: Range<u64>) -> bool {
        self.image.will_need(range)
    }

    fn done_with(&self, range: Range<u64>) {
        self.image.done_with(range);
    }

    fn distrust(&self, range: Range<u64>) {
        self.image.distrust(range);
    }

    fn is_slow(&self) -> bool {
        self.image.is_slow() || self.upper.iter().any(|image| image.is_slow())
    }
}
