//! An image of noise on a real server, the connection to it, and a cache.

use std::path::Path;
use std::sync::Arc;

use forerun_io::MemorySource;
use forerun_remote::push::{PushOptions, push};
use forerun_remote::{ImageName, Registry};
use forerun_remote::{RemoteImage, RemoteOptions, client};
use forerun_testkit::{TempDir, temp_dir};
use forerun_testkit_servers::fault_proxy::FaultProxy;
use forerun_testkit_servers::{Auth, DockerRegistry, Nginx, NginxOptions};

use super::{noise, options, try_open};

/// An image that nginx serves as `image`, and an empty cache.
pub struct Served {
    pub bytes: Vec<u8>,
    pub nginx: Nginx,
    pub files: TempDir,
    pub cache: TempDir,
}

impl Served {
    /// Serves an image. Returns `None` without nginx.
    pub fn new(len: usize, seed: u64) -> Option<Self> {
        Self::with(len, seed, &NginxOptions::default())
    }

    pub fn with(len: usize, seed: u64, options: &NginxOptions) -> Option<Self> {
        let files = temp_dir("files");
        let bytes = noise(len, seed);
        std::fs::write(files.path().join("image"), &bytes).unwrap();
        Some(Self {
            bytes,
            nginx: Nginx::start(files.path(), options)?,
            files,
            cache: temp_dir("cache"),
        })
    }

    pub fn url(&self) -> String {
        self.nginx.url_of("image")
    }

    pub fn options(&self) -> RemoteOptions {
        options(self.cache.path())
    }

    pub fn replace(&self, bytes: &[u8]) {
        let new = self.files.path().join("new");
        std::fs::write(&new, bytes).unwrap();
        std::fs::rename(new, self.files.path().join("image")).unwrap();
    }

    pub fn behind_proxy(self) -> Proxied {
        let proxy = FaultProxy::start(&self.nginx.url());
        Proxied {
            proxy,
            served: self,
        }
    }
}

pub struct Proxied {
    pub proxy: FaultProxy,
    pub served: Served,
}

impl Proxied {
    pub fn new(len: usize, seed: u64) -> Option<Self> {
        Served::new(len, seed).map(Served::behind_proxy)
    }

    pub fn url(&self) -> String {
        self.proxy.url_of("image")
    }

    pub fn bytes(&self) -> &[u8] {
        &self.served.bytes
    }

    pub fn options(&self) -> RemoteOptions {
        self.served.options()
    }

    pub fn open(&self, options: &RemoteOptions) -> Arc<RemoteImage> {
        try_open(&self.url(), options).unwrap()
    }
}

/// Starts a docker-registry with `bytes` in several parts. Returns `None` if it is not installed.
pub fn pushed(bytes: &[u8]) -> Option<DockerRegistry> {
    let registry = DockerRegistry::start(Auth::None)?;
    push_to(&registry.authority(), bytes);
    Some(registry)
}

/// Stores `bytes` as `some/image:v1`, and returns the digest of the manifest.
pub fn push_to(authority: &str, bytes: &[u8]) -> String {
    let client = client::build(&client::ClientOptions::default()).unwrap();
    let mut settings = options(Path::new("/")).registry;
    settings.timeout = super::PATIENT;
    let name: ImageName = format!("{authority}/some/image:v1").parse().unwrap();
    let options = PushOptions {
        part_len: 256 << 10,
        ..PushOptions::default()
    };
    let to = Registry::new(client, settings);
    let source = MemorySource::new(bytes.to_vec());
    let pushed = push(&to, &source, &name, &options, &mut |_| {}).unwrap();
    pushed.name.digest.unwrap().to_string()
}

pub fn name_at(authority: &str) -> String {
    format!("oci://{authority}/some/image:v1")
}
