//! Arguments for container images on disk, in a program without a network: some of those for images at servers.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, ValueHint};
use forerun::unstable::remote::{Platform, RemoteOptions};

/// How a container image is read.
#[derive(Args, Clone, Debug, Default)]
pub struct LocalArgs {
    /// Keep indexes of compressed archives here [default: forerun in $XDG_CACHE_HOME or ~/.cache]
    #[arg(help_heading = "Archives and container images", long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub cache_dir: Option<PathBuf>,
    /// The container image for this platform, OS/ARCHITECTURE[/VARIANT], where there are several
    /// [default: the one for this machine]
    #[arg(
        help_heading = "Archives and container images",
        long,
        value_name = "PLATFORM"
    )]
    pub platform: Option<Platform>,
    /// Of a container image, take the lowest N layers only
    #[arg(help_heading = "Archives and container images", long, value_name = "N")]
    pub first_layers: Option<NonZeroUsize>,
}

impl LocalArgs {
    /// Does nothing: there is nothing to fetch.
    pub const fn fetch_nothing_ahead(&mut self) {}

    /// Returns whether blocks may be read ahead of readers.
    pub const fn fetches_ahead(&self) -> bool {
        true
    }

    /// Returns whether it is recorded what is used.
    pub const fn are_recorded(&self) -> bool {
        false
    }

    /// Does nothing: there are no mirrors.
    #[allow(clippy::unnecessary_wraps)] // As with a network.
    pub const fn reread(&mut self) -> Result<(), String> {
        Ok(())
    }

    /// Converts the arguments into the library's options.
    pub fn options(&self) -> RemoteOptions {
        let mut options = RemoteOptions::default();
        let absolute = |dir: &PathBuf| std::path::absolute(dir).unwrap_or_else(|_| dir.clone());
        // The process that serves a mount changes its directory.
        options.cache_dir = self.cache_dir.as_ref().map(absolute);
        options.registry.platform.clone_from(&self.platform);
        options
    }
}
