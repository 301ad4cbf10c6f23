//! Container images on disk: OCI image layouts, archives of them, archives of `docker save`, and
//! SIF files.

use std::fs::{File, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forerun_cache::Digest;
use forerun_disk::payload::Sif;
use forerun_io::{FileSource, ReadAt, usize_from};
use forerun_remote::LayerContents;
use forerun_remote::{
    LayerFile, OnDiskError, Platform, blob_path, layers_of_docker_archive, layers_of_layout,
};
use forerun_spans::Compression;
use forerun_vfs::{KeepIndex, ProvenTable, TablePlace};

use crate::error::{Cause, Error, Result};
use crate::image::Image;
use crate::kept::KeptIndex;
use crate::kept_index::{kept_index, proven};
use crate::known_digests::{LayerPlace, has_digest, is_known};
use crate::layer_source::{BY_CONTENTS, BY_NAMED_INDEX, LayerSource, LazyLayer, WHOLE};
use crate::options::OpenOptions;
use crate::sif;

/// A container image on disk, by name: `oci-layout:DIR`, `oci-archive:FILE`, `docker-archive:FILE`
/// or `oci-sif:FILE`. If these hold several images, `:NAME` or `@DIGEST` of the manifest
/// follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskImage {
    kind: StoreKind,
    path: PathBuf,
    name: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StoreKind {
    Layout,
    OciArchive,
    DockerArchive,
    Sif,
}

const KINDS: [(&str, StoreKind); 4] = [
    ("oci-layout:", StoreKind::Layout),
    ("oci-archive:", StoreKind::OciArchive),
    ("docker-archive:", StoreKind::DockerArchive),
    ("oci-sif:", StoreKind::Sif),
];

impl DiskImage {
    /// Parses a name. Returns `None` for other names, such as `./oci-layout:x`, which is a file.
    #[must_use]
    pub fn parse(name: &Path) -> Option<Self> {
        let text = name.to_str()?;
        let (kind, rest) = KINDS
            .iter()
            .find_map(|(prefix, kind)| Some((*kind, text.strip_prefix(prefix)?)))?;
        let (path, name) = match rest.split_once("@sha256:") {
            Some((path, hex)) => (path, Some(format!("sha256:{hex}"))),
            None => match rest.split_once(':') {
                Some((path, name)) => (path, Some(name.to_string())),
                None => (rest, None),
            },
        };
        (!path.is_empty()).then(|| Self {
            kind,
            path: PathBuf::from(path),
            name,
        })
    }

    /// Returns the directory or archive.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the file that is replaced when the images change.
    #[must_use]
    pub fn index_file(&self) -> PathBuf {
        match self.kind {
            StoreKind::Layout => self.path.join("index.json"),
            StoreKind::OciArchive | StoreKind::DockerArchive | StoreKind::Sif => self.path.clone(),
        }
    }

    /// Opens the layers of the image, the lowest first, for [`Image::from_layers`]. Each is first
    /// compared with its digest, or is read by a table of contents that its manifest names. If the
    /// image has several platforms, uses the one in the options, or that of this machine.
    ///
    /// # Errors
    /// Errors of reading the files; `InvalidData` for documents that are damaged or name no such
    /// image, and for layers that do not match their digests.
    pub fn layers(&self, options: &OpenOptions) -> Result<Vec<LayerSource>> {
        let named = |error: Error| error.of_image(Some(&self.path));
        let platform = options.remote.registry.platform.as_ref();
        match self.kind {
            StoreKind::Layout => {
                let open = |path: &str| {
                    let path = self.path.join(path);
                    let (source, metadata) = file(&path)?;
                    let place = LayerPlace::new(&path, &metadata, "");
                    Ok((source, place))
                };
                self.opened(platform, options, &open).map_err(named)
            }
            StoreKind::OciArchive | StoreKind::DockerArchive => {
                let metadata = self.path.metadata();
                let metadata = metadata.map_err(|error| named(failed(error.kind(), &error)))?;
                let archive = Image::open_with(&self.path, &of_archive(options))?;
                let open = |path: &str| -> Result<PlacedFile> {
                    let source = Arc::new(archive.file(path)?);
                    Ok((source, LayerPlace::new(&self.path, &metadata, path)))
                };
                self.opened(platform, options, &open).map_err(named)
            }
            StoreKind::Sif => self.in_sif(options).map_err(named),
        }
    }

    fn in_sif(&self, options: &OpenOptions) -> Result<Vec<LayerSource>> {
        let (source, metadata) = file(&self.path)?;
        let sif = Sif::read(&*source)?.filter(Sif::is_container_image);
        let sif = sif.ok_or_else(|| {
            let reason = "not a SIF file with a container image";
            failed(io::ErrorKind::InvalidData, &reason)
        })?;
        let remote = &options.remote;
        let cache = remote.cache_dir().filter(|_| !remote.require_verified);
        let index = cache.and_then(|cache| {
            let index = KeptIndex::open(&cache, &self.path, &metadata, options);
            index
                .inspect_err(|error| tracing::debug!(%error, "no digest of a layer is kept"))
                .ok()
        });
        let index = index.as_ref().map(|index| -> &dyn KeepIndex { index });
        let (shown, name) = (self.path.display().to_string(), self.name.as_deref());
        Ok(sif::container_image(
            &shown,
            name,
            (&source, &sif),
            index,
            options,
        )?)
    }

    fn opened(
        &self,
        platform: Option<&Platform>,
        options: &OpenOptions,
        open: &dyn Fn(&str) -> Result<PlacedFile>,
    ) -> Result<Vec<LayerSource>> {
        let mut read = |path: &str, most: usize| -> io::Result<Vec<u8>> {
            let (source, _) = open(path)?;
            let len = usize::try_from(source.len())
                .ok()
                .filter(|len| *len <= most);
            let len = len.ok_or_else(|| io::Error::from(io::ErrorKind::FileTooLarge))?;
            let mut bytes = vec![0; len];
            source.read_exact_at(0, &mut bytes)?;
            Ok(bytes)
        };
        let name = self.name.as_deref();
        let remote = &options.remote;
        let referrers = remote.referrers && !remote.require_verified;
        let found = if self.kind == StoreKind::DockerArchive {
            layers_of_docker_archive(name, &mut read)
        } else {
            layers_of_layout(name, platform, referrers, &mut read)
        };
        let found = found.map_err(|error| match error {
            // Most read errors already contain the path.
            OnDiskError::Read { path, source } if source.to_string().contains(&path) => {
                failed(source.kind(), &source)
            }
            OnDiskError::Read { ref source, .. } => failed(source.kind(), &error),
            OnDiskError::Refused { .. } | OnDiskError::Unchosen { .. } => {
                failed(io::ErrorKind::InvalidData, &error)
            }
        })?;
        if let Some(reason) = found.unused_tables {
            let path = self.path.display();
            tracing::warn!(reason, %path, "the index of SOCI that the manifest names is not used");
        }
        let cache = options.remote.cache_dir();
        let cache = cache.filter(|_| !options.remote.require_verified);
        let layers = found.layers.into_iter().map(|file| {
            let (source, place) = open(&file.path)?;
            let layer = DiskLayer {
                file,
                source,
                place,
                cache: cache.clone(),
            };
            layer.into_source(&self.path, options, open)
        });
        layers.collect()
    }
}

struct DiskLayer {
    file: LayerFile,
    source: Arc<dyn ReadAt>,
    place: LayerPlace,
    /// The cache that stores digests of files.
    cache: Option<PathBuf>,
}

impl DiskLayer {
    /// Prepares the layer. Compares it with its digest now, unless it has a table of contents with
    /// digests of its parts.
    fn into_source(
        self,
        path: &Path,
        options: &OpenOptions,
        open: &dyn Fn(&str) -> Result<PlacedFile>,
    ) -> Result<LayerSource> {
        let digest = self.file.digest.to_string();
        let name = format!("{}, layer {digest}", path.display());
        let mut layer = LayerSource::new(name, Arc::clone(&self.source));
        match self.table(&layer.name, options, open) {
            Some((table, is_claimed)) => {
                let verify = move || {
                    let verified = self.verify();
                    verified.map_err(|error| forerun_vfs::Error::io(0, 0, error))
                };
                layer.verified = Some(if is_claimed {
                    BY_NAMED_INDEX
                } else {
                    BY_CONTENTS
                });
                layer.lazy = Some(LazyLayer {
                    table,
                    is_claimed,
                    verify_whole: Arc::new(verify),
                });
            }
            None => {
                let verified = self.verify();
                verified.map_err(|error| failed(error.kind(), &error))?;
                layer.verified = Some(WHOLE);
                layer.index = kept_index(&digest, &options.remote);
            }
        }
        Ok(layer)
    }

    /// Returns the table of contents to read the layer by, and whether no trusted document names
    /// it. Ignores a table of SOCI that cannot be read: the layout may lack it.
    fn table(
        &self,
        name: &str,
        options: &OpenOptions,
        open: &dyn Fn(&str) -> Result<PlacedFile>,
    ) -> Option<(ProvenTable, bool)> {
        let is_claimed = self.file.contents.is_none();
        let contents = self.file.contents.or(self.file.claimed)?;
        let LayerContents::Soci { digest, len } = contents else {
            return Some((proven(&contents)?, is_claimed));
        };
        // A stored index, made when the layer was verified as a whole, is preferred to a table that
        // no manifest names.
        let is_known = || is_known(self.file.digest, &self.place, self.cache.as_deref());
        let has_index = || {
            let kept = kept_index(&self.file.digest.to_string(), &options.remote);
            kept.is_some_and(|kept| kept.is_kept())
        };
        if !cfg!(feature = "tar") || is_claimed && is_known() && has_index() {
            return None;
        }
        match bytes_of(&blob_path(&digest), len, open) {
            Ok(bytes) => {
                let table = ProvenTable {
                    digest: digest.0,
                    place: TablePlace::Beside(bytes.into()),
                };
                Some((table, is_claimed))
            }
            Err(error) => {
                tracing::warn!(%error, name, "the table of contents of SOCI is not used");
                None
            }
        }
    }

    /// Returns the compression of a layer from `docker save`, whose documents have digests of
    /// uncompressed layers.
    fn compression(&self) -> io::Result<Option<Compression>> {
        if self.file.len.is_some() {
            return Ok(None);
        }
        let mut head = [0; 16];
        let len = head.len().min(usize_from(self.source.len()));
        self.source.read_exact_at(0, &mut head[..len])?;
        Ok(Compression::of(&head[..len]))
    }

    /// Compares length and digest with the document, unless the cache knows that they match.
    fn verify(&self) -> io::Result<()> {
        let digest = self.file.digest;
        let invalid = |reason| io::Error::new(io::ErrorKind::InvalidData, reason);
        let (len, found) = (self.file.len, self.source.len());
        if let Some(len) = len.filter(|len| *len != found) {
            return Err(invalid(format!(
                "layer {digest} has {found} bytes, not {len}"
            )));
        }
        let hash = || Digest::of_source(&*self.source);
        match has_digest(digest, &self.place, self.cache.as_deref(), hash)? {
            Ok(()) => Ok(()),
            Err(found) => Err(invalid(match self.compression()? {
                Some(compression) => format!(
                    "layer {digest} is compressed with {}, but its digest is for the uncompressed layer; if docker saved it, use oci-archive:FILE",
                    compression.name()
                ),
                None => format!("layer {digest} is damaged: its digest is {found}"),
            })),
        }
    }
}

/// Reads a blob, which must have this length.
fn bytes_of(
    path: &str,
    len: u64,
    open: &dyn Fn(&str) -> Result<PlacedFile>,
) -> std::result::Result<Vec<u8>, String> {
    let (source, _) = open(path).map_err(|error| error.to_string())?;
    if source.len() != len {
        return Err(format!("{path} has {} bytes, not {len}", source.len()));
    }
    // An index cannot name a longer one.
    let mut bytes = vec![0; usize_from(len)];
    let read = source.read_exact_at(0, &mut bytes);
    read.map_err(|error| format!("{path}: {error}"))?;
    Ok(bytes)
}

type PlacedFile = (Arc<dyn ReadAt>, LayerPlace);

fn of_archive(options: &OpenOptions) -> OpenOptions {
    OpenOptions {
        format: Some("tar".to_string()),
        limits: options.limits.clone(),
        spool: options.spool.clone(),
        ..OpenOptions::default()
    }
}

/// Opens a file of a layout. Does not block on pipes.
fn file(path: &Path) -> Result<(Arc<dyn ReadAt>, Metadata)> {
    let opened = path.metadata().and_then(|metadata| {
        if metadata.is_file() {
            let file = File::open(path)?;
            let metadata = file.metadata()?;
            Ok((FileSource::from_file(file)?, metadata))
        } else {
            Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not a regular file",
            ))
        }
    });
    match opened {
        Ok((source, metadata)) => Ok((Arc::new(source), metadata)),
        Err(error) => Err(Error::new(Cause::Open(Arc::new(error))).of_image(Some(path))),
    }
}

fn failed(kind: io::ErrorKind, reason: &dyn std::fmt::Display) -> Error {
    let error = io::Error::new(kind, reason.to_string());
    Error::new(Cause::Open(Arc::new(error)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_have_a_kind_a_path_and_perhaps_an_image() {
        let parse = |text: &str| {
            let image = DiskImage::parse(Path::new(text))?;
            Some((image.kind, image.path.display().to_string(), image.name))
        };
        let of = |kind, path: &str, name: Option<&str>| {
            Some((kind, path.to_string(), name.map(str::to_string)))
        };
        assert_eq!(parse("oci-layout:a/b"), of(StoreKind::Layout, "a/b", None));
        assert_eq!(
            parse("oci-layout:a:1.0"),
            of(StoreKind::Layout, "a", Some("1.0"))
        );
        assert_eq!(
            parse("oci-archive:a.tar@sha256:00"),
            of(StoreKind::OciArchive, "a.tar", Some("sha256:00"))
        );
        assert_eq!(
            parse("docker-archive:a.tar:b:1"),
            of(StoreKind::DockerArchive, "a.tar", Some("b:1"))
        );
        for text in [
            "oci-layout:",
            "./oci-layout:a",
            "oci:a",
            "a",
            "oci-archive::x",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
