//! Resolves a name in a registry to the layout of an image.
//!
//! The tag is resolved once, and everything after that is requested by digest, so a tag that moves
//! meanwhile changes nothing. An image has one of three forms: that of `push`, a manifest whose
//! only layer is a plain image, or a blob named by its digest.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use forerun_cache::Digest;

use crate::address::image_name::ImageName;
use crate::oci::artifact::{self, Artifact};
use crate::oci::choose::choose;
use crate::oci::manifest::{self, Descriptor, Document, MAX_LAYERS, MAX_MANIFEST, Manifest, shown};
use crate::oci::media::{self, Layer};
use crate::oci::soci;
use crate::registry::Registry;
use crate::registry::auth::Access;
use crate::registry::blob::RegistryBlob;
use crate::registry::endpoint::Endpoint;
use crate::registry::read::RawManifest;
use crate::{
    Description, Identity, Layout, Origin, Part, RemoteBlob, RemoteError, Result, TableLayout,
};

impl Registry {
    /// Resolves the image `name`. With `require_verified`, refuses images without a table that
    /// verifies each chunk.
    pub async fn open(
        self: &Arc<Self>,
        name: &ImageName,
        require_verified: bool,
    ) -> Result<Layout> {
        let opening = self.opening(name)?;
        let layout = match opening.named(name).await? {
            NamedObject::Blob(layout) => layout,
            NamedObject::Manifest(manifest, _) => opening.image(&manifest).await?,
        };
        opening.verifiable(layout, require_verified)
    }

    /// Resolves `name` to an image or a container image, whose layers are merged. The layers have
    /// no chunk tables. Each is verified as a whole before it is used
    /// ([`RemoteImage::ensure_whole`](crate::RemoteImage::ensure_whole)), or read by a table of
    /// contents ([`RemoteImage::contents`](crate::RemoteImage::contents)), also with
    /// `require_verified`.
    pub async fn find(
        self: &Arc<Self>,
        name: &ImageName,
        require_verified: bool,
    ) -> Result<FoundInRegistry> {
        let opening = self.opening(name)?;
        let layout = match opening.named(name).await? {
            NamedObject::Blob(layout) => layout,
            NamedObject::Manifest(manifest, bytes)
                if is_container(&manifest) && !is_ours(&manifest) =>
            {
                let mut layers = opening.layers(&manifest)?;
                opening.attach_soci(&bytes, &mut layers).await;
                return Ok(FoundInRegistry::Container(FoundContainer {
                    layers,
                    manifest: bytes,
                    config: manifest.config,
                }));
            }
            NamedObject::Manifest(manifest, _) => opening.image(&manifest).await?,
        };
        let image = opening.verifiable(layout, require_verified)?;
        Ok(FoundInRegistry::Image(Box::new(image)))
    }

    /// Reads the configuration of the container image that was found under `name`.
    pub async fn config(
        self: &Arc<Self>,
        name: &ImageName,
        container: &FoundContainer,
    ) -> Result<Bytes> {
        let opening = self.opening(name)?;
        let config = &container.config;
        self.small_blob(&opening.endpoints, config, MAX_MANIFEST)
            .await
    }

    /// Returns the layout of the blob `digest` in the repository of `name`. Contacts no server.
    /// Fails if a mirror has an invalid address.
    pub fn blob_layout(
        self: &Arc<Self>,
        name: &ImageName,
        digest: Digest,
        len: u64,
    ) -> Result<Layout> {
        self.opening(name)?.whole(&Descriptor {
            media_type: String::new(),
            digest,
            len,
            contents: None,
        })
    }

    fn opening<'a>(self: &'a Arc<Self>, name: &ImageName) -> Result<Opening<'a>> {
        Ok(Opening {
            registry: self,
            place: name.to_string(),
            endpoints: self.endpoints(name)?,
        })
    }

    /// Returns a function that maps digests of blobs in the repository of `name` to their origins.
    /// Contacts no server. Fails if a mirror has an invalid address.
    pub fn locator(
        self: &Arc<Self>,
        name: &ImageName,
    ) -> Result<impl FnMut(Digest) -> Result<Vec<Arc<dyn Origin>>>> {
        let endpoints = self.endpoints(name)?;
        let registry = Arc::clone(self);
        let mut known = HashMap::new();
        Ok(move |digest| origins(&registry, &endpoints, digest, &mut known))
    }

    pub fn endpoints(&self, name: &ImageName) -> Result<Vec<Arc<Endpoint>>> {
        let endpoints = Endpoint::all(name, self.options())?;
        Ok(endpoints.into_iter().map(Arc::new).collect())
    }
}

#[derive(Clone, Debug)]
pub enum FoundInRegistry {
    Image(Box<Layout>),
    Container(FoundContainer),
}

enum NamedObject {
    /// A blob, which is a plain image.
    Blob(Layout),
    /// A manifest and its bytes. From an index, the manifest for this machine.
    Manifest(Manifest, Bytes),
}

#[derive(Clone, Debug)]
pub struct FoundContainer {
    /// The layers, lowest first.
    pub layers: Vec<Layout>,
    pub manifest: Bytes,
    pub config: Descriptor,
}

struct Opening<'a> {
    registry: &'a Arc<Registry>,
    place: String,
    endpoints: Vec<Arc<Endpoint>>,
}

impl Opening<'_> {
    fn refused(&self, reason: &str) -> RemoteError {
        RemoteError::Refused {
            place: self.place.clone(),
            reason: reason.to_string(),
        }
    }

    fn verifiable(&self, layout: Layout, require_verified: bool) -> Result<Layout> {
        if require_verified && layout.table.is_none() {
            return Err(self.refused(
                "the image has no table of digests, so its chunks cannot be verified; forerun push stores an image with a table",
            ));
        }
        Ok(layout)
    }

    async fn named(&self, name: &ImageName) -> Result<NamedObject> {
        let raw = match name.digest {
            None => {
                self.registry
                    .manifest(&self.endpoints, &name.reference(), None)
                    .await?
            }
            Some(digest) => match self.by_digest(digest).await? {
                NamedBy::Manifest(raw) => *raw,
                NamedBy::Blob(len) => {
                    let media_type = String::new();
                    let blob = self.whole(&Descriptor {
                        media_type,
                        digest,
                        len,
                        contents: None,
                    });
                    return blob.map(NamedObject::Blob);
                }
            },
        };
        let (manifest, bytes) = match self.parse(&raw)? {
            Document::Manifest(manifest) => (manifest, raw.bytes),
            Document::Index(entries) => {
                let platform = self.registry.options().platform.as_ref();
                let entry = choose(&entries, platform).map_err(|reason| self.refused(&reason))?;
                self.chosen(entry.descriptor.digest).await?
            }
        };
        Ok(NamedObject::Manifest(manifest, bytes))
    }

    fn parse(&self, raw: &RawManifest) -> Result<Document> {
        tracing::debug!(place = raw.place, digest = %raw.digest, "manifest");
        manifest::parse(&raw.bytes, raw.media_type.as_deref()).map_err(|error| {
            RemoteError::Refused {
                place: raw.place.clone(),
                reason: format!("manifest {}: {error}", raw.digest),
            }
        })
    }

    async fn chosen(&self, digest: Digest) -> Result<(Manifest, Bytes)> {
        let raw = self
            .registry
            .manifest(&self.endpoints, &digest.to_string(), Some(digest))
            .await?;
        match self.parse(&raw)? {
            Document::Manifest(manifest) => Ok((manifest, raw.bytes)),
            Document::Index(_) => Err(self.refused("an index within an index is not opened")),
        }
    }

    async fn image(&self, manifest: &Manifest) -> Result<Layout> {
        if is_ours(manifest) {
            return self.ours(manifest).await;
        }
        self.single(manifest)
    }

    async fn ours(&self, manifest: &Manifest) -> Result<Layout> {
        let config = self
            .registry
            .small_blob(&self.endpoints, &manifest.config, MAX_MANIFEST)
            .await?;
        let artifact = artifact::check(&config, manifest).map_err(|error| {
            self.refused(&format!("the image contradicts its manifest: {error}"))
        })?;
        let Artifact {
            len,
            chunk_size,
            root,
            format,
            table,
            parts,
        } = artifact;
        let mut known = HashMap::new();
        let table = self.blob(&table, &mut known)?;
        let mut offset = 0;
        let mut placed = Vec::with_capacity(parts.len());
        for part in &parts {
            let blob = self.blob(part, &mut known)?;
            placed.push(Part { offset, blob });
            offset += part.len;
        }
        Ok(Layout {
            place: self.place.clone(),
            len,
            identity: Identity::Root(root),
            parts: placed,
            table: Some(TableLayout {
                chunk_size,
                root,
                blob: table,
            }),
            format,
            contents: None,
        })
    }

    /// Returns the layout of a manifest whose only layer is a plain image.
    fn single(&self, manifest: &Manifest) -> Result<Layout> {
        let [layer] = &*manifest.layers else {
            return Err(self.refused(&several(manifest)));
        };
        match media::layer(&layer.media_type) {
            Layer::Image => self.whole(layer),
            Layer::Tar => Err(self.refused(
                "its layer is a tar archive, as in container images, not a filesystem image; make an image of its files first",
            )),
            Layer::Wrapped => Err(self.refused(&format!(
                "its layer {} is compressed or encrypted as a whole, so parts of it cannot be read",
                shown(&layer.media_type)
            ))),
        }
    }

    fn layers(&self, manifest: &Manifest) -> Result<Vec<Layout>> {
        let count = manifest.layers.len();
        if count > MAX_LAYERS {
            return Err(self.refused(&format!(
                "its manifest has {count} layers; at most {MAX_LAYERS} are allowed"
            )));
        }
        let layers = manifest
            .layers
            .iter()
            .map(|layer| match media::layer(&layer.media_type) {
                Layer::Tar | Layer::Image => {
                    let mut layout = self.whole(layer)?;
                    layout.contents = layer.contents;
                    Ok(layout)
                }
                Layer::Wrapped => Err(self.refused(&format!(
                    "its layer {} is compressed or encrypted in an unknown way",
                    shown(&layer.media_type)
                ))),
            });
        layers.collect()
    }

    /// Sets the SOCI tables of contents of the layers, if the manifest names an index of them. If
    /// the index cannot be read, the image opens without them.
    async fn attach_soci(&self, manifest: &[u8], layers: &mut [Layout]) {
        let Some(digest) = soci::index_of(manifest) else {
            return;
        };
        let reference = digest.to_string();
        let raw = self
            .registry
            .manifest(&self.endpoints, &reference, Some(digest));
        let tables = match raw.await {
            Ok(raw) => soci::tables(&raw.bytes, soci::V2).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        match tables {
            Ok(tables) => {
                let without = layers.iter_mut().filter(|layer| layer.contents.is_none());
                for layer in without {
                    let digest = layer.identity.digest();
                    layer.contents = digest.and_then(|digest| soci::table_of(&tables, digest));
                }
            }
            Err(reason) => {
                let place = &self.place;
                tracing::warn!(
                    reason,
                    place,
                    "the index of SOCI that the manifest names is not used"
                );
            }
        }
    }

    fn whole(&self, layer: &Descriptor) -> Result<Layout> {
        let blob = self.blob(layer, &mut HashMap::new())?;
        let identity = Identity::Blob(layer.digest);
        Ok(Layout::single(self.place.clone(), blob, identity))
    }

    /// Finds out whether `digest` names a manifest or a blob. Some registries also serve manifests
    /// as blobs, and some fail when a blob is requested as a manifest. So if an endpoint does not
    /// return a manifest at the first attempt, a blob is requested from it.
    async fn by_digest(&self, digest: Digest) -> Result<NamedBy> {
        let reference = digest.to_string();
        for endpoint in &self.endpoints {
            let manifest = self
                .registry
                .manifest_at(endpoint, &reference, Some(digest))
                .await;
            match manifest {
                Ok(raw) => return Ok(NamedBy::Manifest(Box::new(raw))),
                Err(
                    RemoteError::NotFound { .. }
                    | RemoteError::Refused { .. }
                    | RemoteError::Busy { status: 500, .. },
                ) => (),
                Err(_) => continue,
            }
            let blob = self
                .registry
                .blob_len(endpoint, Access::Pull, &digest)
                .await;
            if let Ok(Some(len)) = blob {
                return Ok(NamedBy::Blob(len));
            }
        }
        let manifest = self
            .registry
            .manifest(&self.endpoints, &reference, Some(digest));
        let raw = manifest.await?;
        Ok(NamedBy::Manifest(Box::new(raw)))
    }

    fn blob(&self, descriptor: &Descriptor, known: &mut Known) -> Result<RemoteBlob> {
        Ok(RemoteBlob {
            description: Description {
                len: descriptor.len,
                version: None,
                digest: Some(descriptor.digest),
                whole: false,
            },
            mirrors: origins(self.registry, &self.endpoints, descriptor.digest, known)?,
        })
    }
}

/// Returns the origins of a blob, one per endpoint. Equal blobs share their origins.
fn origins(
    registry: &Arc<Registry>,
    endpoints: &[Arc<Endpoint>],
    digest: Digest,
    known: &mut Known,
) -> Result<Vec<Arc<dyn Origin>>> {
    if let Some(origins) = known.get(&digest) {
        return Ok(origins.clone());
    }
    let mut origins: Vec<Arc<dyn Origin>> = Vec::with_capacity(endpoints.len());
    for endpoint in endpoints {
        let blob = RegistryBlob::new(Arc::clone(registry), Arc::clone(endpoint), digest)?;
        origins.push(Arc::new(blob));
    }
    known.insert(digest, origins.clone());
    Ok(origins)
}

enum NamedBy {
    Manifest(Box<RawManifest>),
    /// A blob with this length.
    Blob(u64),
}

/// Origins of blobs, so that equal parts of an image share them.
type Known = HashMap<Digest, Vec<Arc<dyn Origin>>>;

/// Returns whether a manifest describes a container image: its layers are archives, or it has
/// several layers and the configuration of a container image.
fn is_container(manifest: &Manifest) -> bool {
    let is_tar = |layer: &Descriptor| media::layer(&layer.media_type) == Layer::Tar;
    let is_configured = matches!(
        manifest.config.media_type.as_str(),
        media::OCI_CONFIG | media::DOCKER_CONFIG
    );
    match &*manifest.layers {
        [] => false,
        [only] => is_tar(only),
        several => is_configured || several.iter().all(is_tar),
    }
}

fn is_ours(manifest: &Manifest) -> bool {
    manifest.artifact_type.as_deref() == Some(media::ARTIFACT)
        || manifest.config.media_type == media::CONFIG
}

fn several(manifest: &Manifest) -> String {
    let Some(first) = manifest.layers.first() else {
        return "its manifest has no layers".to_string();
    };
    let count = manifest.layers.len();
    let kind = match media::layer(&first.media_type) {
        Layer::Tar => {
            "this is a container image of tar layers, not a filesystem image; make an image \
                       of its files first"
        }
        Layer::Image | Layer::Wrapped => "an image is one layer, or was stored by forerun push",
    };
    format!(
        "its manifest has {count} layers, the first a {}: {kind}",
        shown(&first.media_type)
    )
}
