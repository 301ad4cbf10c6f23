//! Entries that `extract` and `tar` take out of an image: the same arguments for both.

use std::ffi::OsString;

use clap::Args;
use forerun_export::{Patterns, Selection};

use crate::args::image_path;
use crate::error::Result;

/// Which entries.
#[derive(Args, Debug)]
pub struct SelectArgs {
    /// Paths in the image, each with everything below it [default: /]
    ///
    /// A path that is not there may be a pattern: '/etc/*.conf', quoted for the shell.
    #[arg(value_name = "PATH")]
    pub paths: Vec<OsString>,
    /// Only what matches, with everything below it
    ///
    /// May be given more than once. A GLOB with a slash is held against the whole path, one without
    /// against the name.
    #[arg(help_heading = "Selection", long, value_name = "GLOB")]
    pub include: Vec<String>,
    /// Not what matches, nor anything below it
    ///
    /// May be given more than once.
    #[arg(help_heading = "Selection", long, value_name = "GLOB")]
    pub exclude: Vec<String>,
    /// Cut this many leading directories off each path
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
    /// Converts the arguments into the library's selection.
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
