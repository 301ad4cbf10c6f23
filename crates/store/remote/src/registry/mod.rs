//! Registries of the OCI distribution specification: reading and pushing manifests and blobs.
//!
//! This module uses the crate's HTTP client instead of the library `oci-client`. That library has
//! its own HTTP client, sends a registry's password to any token server that the registry names,
//! reads manifests of any length, keeps refused tokens, and supports neither refresh tokens nor
//! mirrors.

pub mod auth;
mod blob;
mod call;
mod endpoint;
mod open;
mod read;
mod referrers;
mod upload;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use auth::Auth;

use crate::http::retry::Retries;
use crate::options::registry::RegistryOptions;

pub use open::{FoundContainer, FoundInRegistry};
pub use referrers::Subject;
pub use upload::Repository;

/// Access to all registries for one user: the HTTP client, and the tokens and passwords obtained so
/// far.
#[derive(Debug)]
pub struct Registry {
    client: reqwest::Client,
    options: Arc<RegistryOptions>,
    auth: Auth,
}

impl Registry {
    /// Creates registry access over `client`, which must not follow redirects by itself, because
    /// this module checks their targets.
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

    fn retries(&self) -> Retries {
        Retries {
            attempts: self.options.attempts,
            pause: self.options.backoff,
            within: Duration::MAX,
        }
    }

    fn auth(&self) -> &Auth {
        &self.auth
    }
}
