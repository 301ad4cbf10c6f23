//! The selection of entries: the same arguments for `extract` and `tar`.

use std::ffi::OsString;

use clap::Args;
use forerun_export::{Patterns, Selection};

use crate::args::image_path;
use crate::error::Result;

/// Which entries.
#[derive(Args, Debug)]
pub struct SelectArgs {
    /// Paths in the image, or patterns such as '/etc/*.conf' [default: /]
    #[arg(value_name = "PATH")]
    pub paths: Vec<OsString>,
    /// Take only paths that match GLOB; repeat for more
    ///
    /// A directory is taken together with everything below it. A GLOB with a slash must match the
    /// whole path, and a GLOB without a slash the name.
    #[arg(help_heading = "Selection", long, value_name = "GLOB")]
    pub include: Vec<String>,
    /// Leave out paths that match GLOB; repeat for more
    ///
    /// A directory is left out together with everything below it.
    #[arg(help_heading = "Selection", long, value_name = "GLOB")]
    pub exclude: Vec<String>,
    /// Remove N leading directories from each path
    #[arg(
        help_heading = "Selection",
        long,
        value_name = "N",
        default_value = "0",
        hide_default_value = true
    )]
    pub strip_components: usize,
}

impl SelectArgs {
    pub fn selection(&self) -> Result<Selection> {
        Ok(Selection {
            paths: self
                .paths
                .iter()
                .map(|path| image_path(path).to_vec())
                .collect(),
            include: Patterns::new(&self.include)?,
            exclude: Patterns::new(&self.exclude)?,
            filter: forerun_export::Filter::default(),
            strip_components: self.strip_components,
        })
    }
}
