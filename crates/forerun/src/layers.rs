//! Several images as one tree.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use forerun_engine::Reader;
use forerun_io::{BlobId, Counted, Observer, Pattern, ReadAt, u64_from};
use forerun_layers::{LAYERS_MAX, Layers};
use forerun_vfs::{Bound, Error, Result};

use crate::each_layer;
use crate::image::Image;
use crate::layer_source::LayerSource;
use crate::options::OpenOptions;
use crate::sif;

/// Smallest memory budget for a layer's stored metadata, and for its decoded metadata.
const LEAST_CACHE: u64 = 256 << 10;

/// Opens the images in these sources as one tree, the lowest first. Calls `waiting` at regular
/// intervals until all are open.
///
/// # Errors
/// The errors of opening one image, with its name; [`Error::Unsupported`] for options that apply to
/// a single image, and for layers that cannot be merged.
pub fn open(
    sources: Vec<LayerSource>,
    options: &OpenOptions,
    waiting: &mut dyn FnMut(),
) -> Result<Image> {
    refuse(options)?;
    let sources = sif::expanded(sources, options)?;
    let count = u64_from(sources.len());
    if sources.len() > LAYERS_MAX {
        let most = u64_from(LAYERS_MAX);
        return Err(Error::limit(Bound::Other, "number of layers", most));
    }
    let observer = Arc::new(Observer::new(options.events.clone()));
    // All layers together get the budget of one image.
    let mut of_layer = options.clone();
    of_layer.engine.cache = (options.engine.cache / count.max(1)).max(LEAST_CACHE * 16);
    let opened = each_layer::open(&sources, &of_layer, &observer, waiting)?;
    #[cfg(feature = "remote")]
    for layer in sources.iter().filter_map(|source| source.server.as_ref()) {
        layer.begin_recording();
    }
    let (layers, metadata): (Vec<_>, Vec<_>) = opened.into_iter().unzip();
    let images: Vec<_> = layers
        .iter()
        .map(|layer| Arc::clone(&layer.image))
        .collect();
    let fs = Arc::new(Layers::new(layers, &options.limits)?);
    let (Some((lowest, upper)), Some(metadata)) =
        (images.split_first(), metadata.into_iter().next())
    else {
        return Err(Error::Unsupported("a stack without layers".to_string()));
    };
    options.engine.log_memory_use();
    let lowest = Lowest {
        image: Arc::clone(lowest),
        upper: upper.to_vec(),
    };
    let mut lens = images.iter().map(|image| image.len());
    let source_len = lens.try_fold(0, u64::checked_add).ok_or_else(|| {
        let what = "length of all layers, in bytes,";
        Error::limit(Bound::Other, what, u64::MAX)
    })?;
    Ok(Image {
        name: None,
        format: None,
        container: None,
        offset: 0,
        source_len,
        metadata: Arc::clone(&metadata),
        reader: Reader::new(
            fs,
            Counted::new(Arc::new(lowest), BlobId::IMAGE, observer),
            metadata,
            options.engine.clone(),
            options.limits_of(source_len),
        ),
    })
}

/// Rejects options that apply to a single image.
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

/// The image of the lowest layer, which represents all layers in the engine. It counts as slow if
/// any layer is slow.
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
