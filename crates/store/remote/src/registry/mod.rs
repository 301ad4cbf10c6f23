//! Registries of the OCI distribution specification: reading manifests and blobs, pushing them.
//!
//! It uses the crate's one HTTP client and not the library `oci-client`. That brings an HTTP client of its
//! own, sends a registry's password to any token server that the registry names, reads manifests of any
//! length, keeps a token that was refused, and supports neither refresh tokens nor mirrors.

#[cfg(feature = "network")]
pub(crate) mod artifact;
#[cfg(feature = "network")]
mod auth;
#[cfg(feature = "network")]
mod blob;
#[cfg(feature = "network")]
mod call;
#[cfg(feature = "network")]
mod challenge;
mod choose;
mod contents;
#[cfg(feature = "network")]
mod credential_helper;
#[cfg(feature = "network")]
mod docker_config;
#[cfg(feature = "network")]
mod endpoint;
#[cfg(feature = "network")]
pub mod fuzzing;
#[cfg(feature = "network")]
mod link;
mod manifest;
pub mod media;
mod on_disk;
mod on_disk_soci;
#[cfg(feature = "network")]
mod open;
mod options;
#[cfg(feature = "network")]
mod parameter;
mod platform;
#[cfg(feature = "network")]
mod read;
#[cfg(feature = "network")]
mod realm;
#[cfg(feature = "network")]
mod referrer_list;
#[cfg(feature = "network")]
mod referrers;
mod referring;
#[cfg(feature = "network")]
mod retry;
#[cfg(feature = "network")]
mod secret;
pub(crate) mod soci;
#[cfg(feature = "network")]
mod token;
#[cfg(feature = "network")]
mod upload;
#[cfg(feature = "network")]
mod wire;

#[cfg(feature = "network")]
use std::sync::Arc;

#[cfg(feature = "network")]
use auth::Auth;

#[cfg(feature = "network")]
pub use crate::image_name::ImageName;
pub use on_disk::{
    FoundLayers, LayerFile, OnDiskError, blob_path, layers_of_docker_archive, layers_of_layout,
};
#[cfg(feature = "network")]
pub use open::{FoundContainer, FoundInRegistry};
pub use options::{Mirror, RegistryOptions};
pub use platform::{NoPlatform, Platform};
#[cfg(feature = "network")]
pub(crate) use referrers::Subject;
#[cfg(feature = "network")]
pub(crate) use upload::Repository;

/// All registries as one user sees them: the HTTP client, and the tokens and passwords that were
/// obtained.
#[cfg(feature = "network")]
#[derive(Debug)]
pub struct Registry {
    client: reqwest::Client,
    options: Arc<RegistryOptions>,
    auth: Auth,
}

#[cfg(feature = "network")]
impl Registry {
    /// Makes a client of registries over `client`, which must not follow redirects by itself: their
    /// targets are checked here.
    #[must_use]
    pub fn new(client: reqwest::Client, options: RegistryOptions) -> Arc<Self> {
        let options = Arc::new(options);
        Arc::new(Self {
            auth: Auth::new(client.clone(), Arc::clone(&options)),
            client,
            options,
        })
    }

    /// Forgets tokens and passwords, so that the user's files are read again.
    pub fn reload(&self) {
        self.auth.forget();
    }

    fn client(&self) -> &reqwest::Client {
        &self.client
    }

    fn options(&self) -> &RegistryOptions {
        &self.options
    }

    fn auth(&self) -> &Auth {
        &self.auth
    }
}
