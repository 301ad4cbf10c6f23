//! Options of registries, for users to set.

use std::path::PathBuf;
use std::time::Duration;

use crate::oci::platform::Platform;

/// A mirror of a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// The registry as it stands in names: `host` or `host:port`.
    pub registry: String,
    /// The address that is asked before it: `https://host`, `http://host:port`, and a path where
    /// repositories lie below one.
    pub location: String,
}

/// Settings of all registries.
#[derive(Clone, Debug)]
pub struct RegistryOptions {
    /// Mirrors, asked in this order before the registry itself. Only reading uses them.
    pub mirrors: Vec<Mirror>,
    /// Hosts (`host` or `host:port`) that may be reached without TLS. Registries there are asked by plain
    /// http. Addresses of web servers and object stores that begin with `http:` are refused for all other
    /// hosts. Loopback is always allowed.
    pub insecure: Vec<String>,
    /// Hosts that may be given a registry's credentials to make a token of them, besides the
    /// registry's own domain.
    pub auth_realms: Vec<String>,
    /// Files in the form of Docker's `config.json`; the first one with credentials for a registry wins.
    /// Without a list those of podman and Docker in their usual places.
    pub auth_files: Option<Vec<PathBuf>>,
    /// The platform of an image that is there for several; without it that of this machine.
    pub platform: Option<Platform>,
    /// Longest time without a byte before a request is given up.
    pub timeout: Duration,
    /// How often a request for a manifest, token or upload is made before it has failed.
    pub attempts: u32,
    /// Pause before the second attempt; doubled before each further one.
    pub backoff: Duration,
}

impl Default for RegistryOptions {
    fn default() -> Self {
        Self {
            mirrors: Vec::new(),
            insecure: Vec::new(),
            auth_realms: Vec::new(),
            auth_files: None,
            platform: None,
            timeout: Duration::from_secs(30),
            attempts: 5,
            backoff: Duration::from_millis(200),
        }
    }
}
