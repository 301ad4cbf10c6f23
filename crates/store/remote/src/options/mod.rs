//! Options for opening a remote image.

#[cfg(feature = "network")]
mod files;
pub mod registry;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::progress::Progress;

use registry::RegistryOptions;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Readahead {
    /// Windows are requested without waiting. The reader continues as soon as its own chunk is
    /// present.
    #[default]
    Async,
    /// The reader waits for the whole window. For comparison only.
    Sync,
    /// Only ranges that `will_need` names are read ahead.
    Off,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Prefetch {
    #[default]
    None,
    /// The whole image, in the background.
    All,
    /// The ranges of an access list that an earlier run recorded.
    List(PathBuf),
}

/// A callback for downloads of whole files. It gets the address and the progress, once before the
/// first byte and after every chunk.
#[derive(Clone, Default)]
pub struct DownloadReport(Option<Arc<Callback>>);

type Callback = dyn Fn(&str, Progress) + Send + Sync;

impl DownloadReport {
    #[must_use]
    pub fn new(report: impl Fn(&str, Progress) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(report)))
    }

    pub(crate) fn call(&self, place: &str, progress: Progress) {
        if let Some(report) = &self.0 {
            report(place, progress);
        }
    }
}

impl fmt::Debug for DownloadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DownloadReport({})", self.0.is_some())
    }
}

#[derive(Clone, Debug)]
pub struct RemoteOptions {
    /// Directory of the cache. The default is the user's cache directory.
    pub cache_dir: Option<PathBuf>,
    /// Bytes that the cache may hold, for all images together. The default is a tenth of its
    /// filesystem, or less if under a twentieth would stay free. `u64::MAX` means no limit.
    pub cache_limit: Option<u64>,
    /// Other addresses of the same image, best first. They are tried after the address of the
    /// reference. For a registry, these are registries that mirror it, and they are tried first.
    pub mirrors: Vec<String>,
    /// Whether to contact no server, so that only cached chunks can be read.
    pub offline: bool,
    /// Longest time that a reader or the opening waits.
    pub timeout: Duration,
    /// Longest time without a byte before a request is abandoned and repeated.
    pub stall: Duration,
    pub connect_timeout: Duration,
    /// Number of consecutive retries without progress.
    pub retries: u32,
    /// Whether to refuse images whose chunks cannot be verified one by one.
    pub require_verified: bool,
    /// Whether to serve cached chunks without verifying them again at first use.
    pub trust_cache: bool,
    pub readahead: Readahead,
    pub prefetch: Prefetch,
    /// File to write the order of the chunks that were read to.
    pub record: Option<PathBuf>,
    /// A file of layer indexes that the caller trusts, for layers without an index in the cache.
    /// Not used with [`require_verified`](Self::require_verified).
    pub layer_index: Option<PathBuf>,
    /// Whether to use indexes and access lists that were pushed beside a container image
    /// ([`push_sidecar`](crate::push_sidecar)). The caller then trusts everyone who may push to the
    /// repository. With [`require_verified`](Self::require_verified), only the access lists are
    /// used.
    pub referrers: bool,
    /// Longest readahead window of one reader, in bytes; up to two are in flight at a time. A good
    /// value is bandwidth times round trip, which is 8 MiB at 100 MB/s and 80 ms.
    pub window: u64,
    pub registry: RegistryOptions,
    /// Chunk size of images without a table: a power of two from 4 KiB to 1 MiB.
    pub chunk_len: u32,
    /// Most requests in flight, not counting those with waiting readers.
    pub requests: usize,
    #[cfg(feature = "network")]
    pub credentials: crate::CredentialFiles,
    /// A PEM file of additional trusted certificates.
    pub ca_file: Option<PathBuf>,
    /// Called while an image is downloaded whole because its server does not support range
    /// requests.
    pub download: DownloadReport,
}

impl Default for RemoteOptions {
    fn default() -> Self {
        Self {
            cache_dir: None,
            cache_limit: None,
            mirrors: Vec::new(),
            offline: false,
            timeout: Duration::from_secs(30),
            stall: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(5),
            retries: 5,
            require_verified: false,
            trust_cache: false,
            readahead: Readahead::default(),
            prefetch: Prefetch::default(),
            record: None,
            layer_index: None,
            referrers: false,
            window: 8 << 20,
            registry: RegistryOptions::default(),
            chunk_len: 64 << 10,
            requests: 12,
            #[cfg(feature = "network")]
            credentials: crate::CredentialFiles::default(),
            ca_file: None,
            download: DownloadReport::default(),
        }
    }
}

impl RemoteOptions {
    /// Returns the cache directory: the configured one, otherwise `forerun` below `XDG_CACHE_HOME`
    /// or `~/.cache`. `None` if there is no home directory.
    #[must_use]
    pub fn cache_dir(&self) -> Option<PathBuf> {
        let set = |name: &str| {
            std::env::var_os(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        self.cache_dir.clone().or_else(|| {
            set("XDG_CACHE_HOME")
                .or_else(|| set("HOME").map(|home| home.join(".cache")))
                .map(|cache| cache.join("forerun"))
        })
    }
}
