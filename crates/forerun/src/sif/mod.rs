//! SIF files that hold more than one filesystem: container images (OCI-SIF), and partitions with
//! changes of the root.

#[cfg(feature = "layouts")]
mod container_image;

use std::sync::Arc;

use forerun_disk::payload::{Sif, is_sif};
use forerun_io::{ReadAt, Window};
use forerun_vfs::{Error, KeepIndex, Result, read_head};

use crate::OpenOptions;
use crate::contents;
use crate::identify::format_of;
use crate::layer_source::LayerSource;

#[cfg(feature = "layouts")]
pub use container_image::container_image;

/// Returns the layers of a SIF file, the lowest first: those of a container image, or the root
/// filesystem and its overlays. Returns nothing for other files, and for a SIF file with nothing
/// but a root filesystem. `index` keeps what was verified. An overlay that cannot be opened is left
/// out, with a warning.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Unsupported`] and [`Error::Io`].
pub fn layers(
    name: &str,
    source: &Arc<dyn ReadAt>,
    index: Option<&dyn KeepIndex>,
    options: &OpenOptions,
) -> Result<Option<Vec<LayerSource>>> {
    if options.offset > 0 || options.size.is_some() || options.table.is_some() {
        return Ok(None);
    }
    // The magic number is at byte 32: a tar archive may have it in a name.
    let head = read_head(&**source, 64)?;
    if !is_sif(&head) || format_of(&**source, &OpenOptions::default()).is_some() {
        return Ok(None);
    }
    let Some(sif) = Sif::read(&**source)? else {
        return Ok(None);
    };
    if sif.is_container_image() {
        return container_image(name, None, (source, &sif), index, options).map(Some);
    }
    match with_overlays(name, source, &sif, options) {
        Err(error) if options.rescue => {
            tracing::warn!(%error, "the overlay partitions are not read");
            Ok(None)
        }
        layers => layers,
    }
}

/// Returns the root filesystem and the overlays above it, if there are any that can be read.
fn with_overlays(
    name: &str,
    source: &Arc<dyn ReadAt>,
    sif: &Sif,
    options: &OpenOptions,
) -> Result<Option<Vec<LayerSource>>> {
    let overlays = sif.overlays()?;
    if overlays.is_empty() {
        return Ok(None);
    }
    let root = sif.root()?;
    let root = match root.size {
        Some(size) => part(source, (root.offset, size))?,
        None => Arc::clone(source),
    };
    let mut layers = vec![LayerSource::new(named(name, "the root partition"), root)];
    for overlay in overlays {
        let part = part(source, (overlay.offset, overlay.size))?;
        let title = format!("overlay partition {}", overlay.id);
        if options.format.is_some() {
            tracing::warn!("{title} is not read: --format is for one image");
        } else if is_readable(&title, &*part)? {
            layers.push(LayerSource::new(named(name, &title), part));
        }
    }
    Ok((layers.len() > 1).then_some(layers))
}

/// Returns whether a driver knows what an overlay holds. If none does, a warning names it.
fn is_readable(title: &str, part: &dyn ReadAt) -> Result<bool> {
    let is_known = format_of(part, &OpenOptions::default()).is_some();
    if !is_known {
        let found = contents::foreign(part)?.unwrap_or("of an unknown format");
        tracing::warn!("{title} ({found}) is not read, so what the container changed is missing");
    }
    Ok(is_known)
}

/// Returns the layers, with those of SIF files among them in the place of the files.
///
/// # Errors
/// The errors of [`layers`], with the name of the file.
pub fn expanded(sources: Vec<LayerSource>, options: &OpenOptions) -> Result<Vec<LayerSource>> {
    let mut all = Vec::new();
    for source in sources {
        // A blob of a container image is no SIF file, and one at a server is not here yet.
        if source.verified.is_some() || source.is_remote() {
            all.push(source);
            continue;
        }
        let index = source.index.as_deref();
        let inside = layers(&source.name, &source.source, index, options);
        match inside.map_err(|error| error.in_image(&source.name.as_str().into()))? {
            Some(layers) => all.extend(layers),
            None => all.push(source),
        }
    }
    Ok(all)
}

fn named(name: &str, what: &str) -> String {
    if name.is_empty() {
        what.to_string()
    } else {
        format!("{name}, {what}")
    }
}

fn part(source: &Arc<dyn ReadAt>, (offset, size): (u64, u64)) -> Result<Arc<dyn ReadAt>> {
    let window = Window::new(Arc::clone(source), offset, Some(size));
    Ok(Arc::new(
        window.map_err(|error| Error::io(offset, 0, error))?,
    ))
}

/// Returns the error of a container image: there is nothing that opens its documents.
#[cfg(not(feature = "layouts"))]
fn container_image(
    _name: &str,
    _wanted: Option<&str>,
    _file: (&Arc<dyn ReadAt>, &Sif),
    _index: Option<&dyn KeepIndex>,
    _options: &OpenOptions,
) -> Result<Vec<LayerSource>> {
    let what = "container images in SIF files, in a program without the feature `layouts`";
    Err(Error::Unsupported(what.to_string()))
}
