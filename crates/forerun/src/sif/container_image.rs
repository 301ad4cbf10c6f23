//! Container images in SIF files: the index, the manifests and the layers are objects of the file.

use std::io::{self, ErrorKind};
use std::sync::Arc;

use forerun_cache::Digest;
use forerun_disk::payload::Sif;
use forerun_io::{ReadAt, usize_from};
use forerun_remote::{OnDiskError, layers_of_layout};
use forerun_vfs::{Corrupt, Error, KeepIndex, Result};

use super::{is_readable, named, part};
use crate::OpenOptions;
use crate::contents;
use crate::kept_index::kept_index;
use crate::layer_source::{LayerSource, WHOLE};

/// Returns the layers of a container image in a SIF file, each compared with its digest unless
/// `index` knows that it was. `wanted` is the name of the image, or the digest of its manifest.
///
/// # Errors
/// The errors of [`layers`](super::layers).
pub fn container_image(
    name: &str,
    wanted: Option<&str>,
    (source, sif): (&Arc<dyn ReadAt>, &Sif),
    index: Option<&dyn KeepIndex>,
    options: &OpenOptions,
) -> Result<Vec<LayerSource>> {
    let platform = options.remote.registry.platform.as_ref();
    let mut read = |path: &str, most: usize| document(source, sif, path, most);
    let found = layers_of_layout(wanted, platform, false, &mut read).map_err(refused)?;
    let mut verified = Verified::load(index);
    let last = found.layers.len().saturating_sub(1);
    let mut layers = Vec::new();
    for (n, file) in found.layers.iter().enumerate() {
        let digest = file.digest.to_string();
        let place = sif.blob(&digest)?;
        let place = place.ok_or_else(|| corrupt(Check::Missing(digest.clone())))?;
        let blob = part(source, place)?;
        // Changes that are still written to: their digest is that of when they were added.
        let is_overlay = n == last && n > 0 && is_ext(&*blob)?;
        if is_overlay && !is_readable("the uppermost layer", &*blob)? {
            continue;
        }
        if let Some(len) = file.len.filter(|len| *len != blob.len()) {
            let found = blob.len();
            return Err(corrupt(Check::Length { digest, found, len }));
        }
        let checked = verified.check(file.digest, &*blob);
        let mut layer = LayerSource::new(named(name, &format!("layer {digest}")), blob);
        match checked {
            Ok(()) => {
                layer.verified = Some(WHOLE);
                layer.index = kept_index(&digest, &options.remote);
            }
            Err(error) if options.rescue => tracing::warn!("{error}"),
            Err(error) => return Err(error),
        }
        layers.push(layer);
    }
    verified.store();
    Ok(layers)
}

fn is_ext(part: &dyn ReadAt) -> Result<bool> {
    Ok(contents::foreign(part)?.is_some_and(|name| name.starts_with("ext")))
}

/// Reads a document of the container image: the index, or a blob by its path in a layout.
fn document(source: &Arc<dyn ReadAt>, sif: &Sif, path: &str, most: usize) -> io::Result<Vec<u8>> {
    let place = match path.strip_prefix("blobs/sha256/") {
        Some(hex) => sif.blob(&format!("sha256:{hex}")),
        None => sif.index(),
    };
    let place = place.map_err(io::Error::other)?;
    let (offset, size) = place.ok_or(ErrorKind::NotFound)?;
    let len = usize::try_from(size).ok().filter(|len| *len <= most);
    let mut bytes = vec![0; len.ok_or(ErrorKind::FileTooLarge)?];
    source.read_exact_at(offset, &mut bytes)?;
    Ok(bytes)
}

/// The digests of layers that were verified, which are kept as the index of the file.
struct Verified<'i> {
    index: Option<&'i dyn KeepIndex>,
    known: Vec<String>,
    is_new: bool,
}

impl<'i> Verified<'i> {
    /// Longest text that is read: for each of the most layers, a digest and the end of its line.
    const MOST: u64 = 1024 * 72;

    fn load(index: Option<&'i dyn KeepIndex>) -> Self {
        let kept = index.and_then(|index| index.load(Self::MOST));
        let kept = String::from_utf8(kept.unwrap_or_default()).unwrap_or_default();
        Self {
            index,
            known: kept.lines().map(str::to_string).collect(),
            is_new: false,
        }
    }

    fn check(&mut self, digest: Digest, blob: &dyn ReadAt) -> Result<()> {
        let text = digest.to_string();
        if self.known.contains(&text) {
            return Ok(());
        }
        let found = Digest::of_source(blob);
        let found = found.map_err(|error| Error::io(0, usize_from(blob.len()), error))?;
        if found != digest {
            let (digest, found) = (text, found.to_string());
            return Err(corrupt(Check::Digest { digest, found }));
        }
        self.known.push(text);
        self.is_new = true;
        Ok(())
    }

    fn store(&self) {
        if let Some(index) = self.index.filter(|_| self.is_new) {
            index.store(self.known.join("\n").as_bytes());
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum Check {
    #[error("it has no blob {0}")]
    Missing(String),
    #[error("layer {digest} has {found} bytes, not {len}")]
    Length {
        digest: String,
        found: u64,
        len: u64,
    },
    #[error("layer {digest} is damaged: its digest is {found}")]
    Digest { digest: String, found: String },
    #[error(transparent)]
    Document(OnDiskError),
}

fn corrupt(check: Check) -> Error {
    Corrupt::new("SIF", None, 0, check).into()
}

/// Returns the error of the documents of a container image.
fn refused(error: OnDiskError) -> Error {
    match error {
        OnDiskError::Unchosen { .. } => Error::Unsupported(format!(
            "{error}; oci-sif:FILE@sha256:... opens it, or --platform"
        )),
        OnDiskError::Read { source, .. } if source.raw_os_error().is_some() => {
            Error::io(0, 0, source)
        }
        OnDiskError::Read { .. } | OnDiskError::Refused { .. } => corrupt(Check::Document(error)),
    }
}
