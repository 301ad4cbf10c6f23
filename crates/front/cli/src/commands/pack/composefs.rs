//! Options of composefs.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use forerun::build::ComposefsOptions;

use super::format::first;
use crate::error::{Failure, Result};
use crate::size;

/// Options of composefs.
#[derive(Args, Debug)]
pub struct ComposefsArgs {
    /// Directory that files go to, named by their digests; made where there is none. Many images
    /// can share one
    #[arg(help_heading = "composefs", long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub objects: Option<PathBuf>,
    /// Keep files up to this size in the image; at most 4095. The digest of the image depends on it
    /// [default: 64]
    #[arg(help_heading = "composefs", long, value_name = "BYTES", value_parser = size::parse)]
    inline: Option<u64>,
    /// Lowest version of the format: 0 or 1 [default: 0]
    #[arg(help_heading = "composefs", long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1))]
    min_version: Option<u32>,
    /// Highest version of the format; 1 is taken where there are whiteouts [default: 1]
    #[arg(help_heading = "composefs", long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1))]
    max_version: Option<u32>,
    /// Make files of INPUT objects by a hard link where possible. Do not change them afterwards
    #[arg(help_heading = "composefs", long)]
    pub link_objects: bool,
}

impl ComposefsArgs {
    /// Converts the arguments into the library's options.
    pub fn options(&self) -> Result<ComposefsOptions> {
        if self.objects.is_none() {
            let hint = "give the directory of the object store with --objects DIR";
            return Err(Failure::usage("composefs keeps files outside the image").hint(hint));
        }
        let mut options = ComposefsOptions::default();
        options.objects.clone_from(&self.objects);
        if let Some(inline) = self.inline {
            options.inline = usize::try_from(inline).unwrap_or(usize::MAX);
        }
        options.min_version = self.min_version.unwrap_or(options.min_version);
        options.max_version = self.max_version.unwrap_or(options.max_version);
        options.hard_links = self.link_objects;
        Ok(options)
    }

    /// Returns the first option of these that was given.
    pub fn first_given(&self) -> Option<&'static str> {
        first(&[
            (self.objects.is_some(), "--objects"),
            (self.inline.is_some(), "--inline"),
            (self.min_version.is_some(), "--min-version"),
            (self.max_version.is_some(), "--max-version"),
            (self.link_objects, "--link-objects"),
        ])
    }
}
