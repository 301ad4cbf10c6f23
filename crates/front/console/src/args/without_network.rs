//! Arguments for container images on disk, in a program without a network: some of those for remote
//! images.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, ValueHint};
use forerun::unstable::remote::{Platform, RemoteOptions};

/// How a container image is read.
#[derive(Args, Clone, Debug, Default)]
pub struct LocalArgs {
    /// Directory for indexes of compressed archives [default: $XDG_CACHE_HOME/forerun or ~/.cache/forerun]
    #[arg(help_heading = "Archives and container images", long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub cache_dir: Option<PathBuf>,
    /// Platform of a container image, such as linux/arm64/v8 [default: the platform of this
    /// machine]
    #[arg(
        help_heading = "Archives and container images",
        long,
        value_name = "OS/ARCH[/VARIANT]"
    )]
    pub platform: Option<Platform>,
    /// Use only the lowest N layers of a container image
    #[arg(help_heading = "Archives and container images", long, value_name = "N")]
    pub first_layers: Option<NonZeroUsize>,
}

impl LocalArgs {
    /// Does nothing, because there is nothing to fetch.
    pub const fn fetch_nothing_ahead(&mut self) {}

    pub const fn fetches_ahead(&self) -> bool {
        true
    }

    pub const fn are_recorded(&self) -> bool {
        false
    }

    /// Does nothing, because there are no mirrors.
    #[allow(clippy::unnecessary_wraps)] // As with a network.
    pub const fn reread(&mut self) -> Result<(), String> {
        Ok(())
    }

    pub fn options(&self) -> RemoteOptions {
        let mut options = RemoteOptions::default();
        let absolute = |dir: &PathBuf| std::path::absolute(dir).unwrap_or_else(|_| dir.clone());
        // The process that serves a mount changes its directory.
        options.cache_dir = self.cache_dir.as_ref().map(absolute);
        options.registry.platform.clone_from(&self.platform);
        options
    }
}
