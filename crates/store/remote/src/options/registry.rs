//! User settings for registries.

use std::path::PathBuf;
use std::time::Duration;

use crate::oci::platform::Platform;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// The registry as written in image names: `host` or `host:port`.
    pub registry: String,
    /// The address of the mirror: `https://host` or `http://host:port`, with the path under which
    /// it keeps repositories, if any.
    pub location: String,
}

#[derive(Clone, Debug)]
pub struct RegistryOptions {
    /// Mirrors, tried in this order before the registry itself. Only reads use them.
    pub mirrors: Vec<Mirror>,
    /// Hosts (`host` or `host:port`) that may be contacted without TLS. Registries on them are
    /// contacted by plain HTTP. For all other hosts, `http:` addresses of web servers and object
    /// stores are refused. Loopback is always allowed.
    pub insecure: Vec<String>,
    /// Hosts of token servers that may receive a registry's credentials, besides the registry's own
    /// domain.
    pub auth_realms: Vec<String>,
    /// Files in the form of Docker's `config.json`; the first one with credentials for a registry
    /// wins. The default is the usual files of podman and Docker.
    pub auth_files: Option<Vec<PathBuf>>,
    /// The platform to choose from a multi-platform image. The default is that of this machine.
    pub platform: Option<Platform>,
    /// Longest time without a byte before a request is abandoned.
    pub timeout: Duration,
    /// Number of attempts for a request of a manifest, token or upload.
    pub attempts: u32,
    /// Pause before the second attempt. It doubles before each further one.
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
