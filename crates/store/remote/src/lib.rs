//! Images in registries, object stores and on web servers, fetched on demand.
//!
//! This is the only crate that opens network sockets, and it hides the asynchronous runtime. Its users see a
//! [`ReadAt`](forerun_io::ReadAt).
//!
//! Without the feature `network`, the crate contacts no server and builds no runtime, TLS or HTTP. It still
//! reads container images on disk, and has types without values for remote images, so that a caller needs
//! only one code path.
//!
//! | folder | contents |
//! |---|---|
//! | `address`, `options` | names of images, and the user's settings |
//! | `credentials` | passwords from the user's files and from credential helpers |
//! | `http` | the client, its redirects and proxies, checks of answers |
//! | `origin` | one blob on one web server or object store; the parts of an image |
//! | `oci` | manifests, indexes, annotations; images on disk |
//! | `registry` | requests to registries and their tokens: manifests, blobs, referrers, uploads |
//! | `fetch` | mirrors, retries, the scheduler; digests of fetched chunks |
//! | `resolve` | resolves a name to an image on its servers, or to the facts that the cache remembers |
//! | `sidecar` | indexes and access lists in an artifact that refers to a container image |
//! | `image` | an image as a source |
//! | `open`, `transfer` | opens images; pushes and pulls whole images |

// Documents in registries and on disk have one parser. Without the network, parts of it are unused.
#![cfg_attr(not(feature = "network"), allow(dead_code))]

#[cfg(feature = "network")]
mod address;
#[cfg(feature = "network")]
mod credentials;
mod error;
#[cfg(feature = "network")]
mod fetch;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
#[cfg(feature = "network")]
mod http;
#[cfg(feature = "network")]
mod image;
#[cfg(feature = "network")]
mod metrics;
mod oci;
#[cfg(feature = "network")]
mod open;
mod options;
#[cfg(feature = "network")]
mod origin;
mod progress;
mod redact;
#[cfg(feature = "network")]
mod registry;
#[cfg(feature = "network")]
mod resolve;
#[cfg(feature = "network")]
pub mod runtime;
#[cfg(feature = "network")]
mod sidecar;
mod status;
#[cfg(feature = "network")]
mod transfer;
#[cfg(not(feature = "network"))]
mod without_network;

pub use error::{RemoteError, Result};
pub use oci::layer_contents::LayerContents;
pub use oci::media;
pub use oci::on_disk::{
    FoundLayers, LayerFile, OnDiskError, blob_path, layers_of_docker_archive, layers_of_layout,
};
pub use oci::platform::{NoPlatform, Platform};
pub use options::registry::{Mirror, RegistryOptions};
pub use options::{DownloadReport, Prefetch, Readahead, RemoteOptions};
pub use progress::Progress;
pub use redact::{has_password, is_plain, without_secrets};
pub use status::RemoteStatus;
#[cfg(not(feature = "network"))]
pub use without_network::{NoReference as Reference, NoRemoteImage as RemoteImage, open};

#[cfg(feature = "network")]
mod exports {
    //! Names of images on servers, and requests for them.

    pub use crate::address::image_name::ImageName;
    pub use crate::address::place_of;
    pub use crate::address::reference::Reference;
    pub use crate::credentials::files::CredentialFiles;
    pub use crate::fetch::counters::Counters;
    pub use crate::fetch::{ChunkOutcome, Fetcher, Patience};
    pub use crate::http::client;
    pub use crate::http::response::{self, Body};
    pub use crate::image::RemoteImage;
    pub use crate::image::access_list::{access_list, access_lists};
    pub use crate::metrics::serve_metrics;
    pub use crate::open::{Opened, open, open_all, open_origin};
    pub use crate::origin::layout::{Identity, Layout, Part, RemoteBlob, TableLayout};
    pub use crate::origin::{Description, HttpOrigin, Origin, Pinned, S3Origin};
    pub use crate::registry::{FoundContainer, FoundInRegistry, Registry};
    pub use crate::resolve::FromMemory;
    pub use crate::resolve::container::{ContainerLayer, ContainerManifest, container_manifest};
    pub use crate::sidecar::index::{BadIndex, ImageIndex, LayerIndex};
    pub use crate::sidecar::parts::Sidecar;
    pub use crate::sidecar::push_sidecar;
    pub use crate::transfer::{pull, pull_to, push, push_to};
}
#[cfg(feature = "network")]
pub use exports::*;
