//! Options of composefs.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use forerun::build::ComposefsOptions;
use forerun::unstable::composefs::write::VERSION_MAX;
use forerun::unstable::composefs::{Algorithm, Composefs};
use forerun::{Image, Writer};

use super::erofs::Inline;
use super::format::{Given, NewFormat};
use crate::error::{Failure, Result};

/// Options of composefs.
#[derive(Args, Debug)]
pub struct ComposefsArgs {
    /// Object store: file contents go to this directory, which is created if it does not exist. Several
    /// images can use one store
    #[arg(help_heading = "composefs", long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub objects: Option<PathBuf>,
    /// Version of the format: 0, 1, or 0-1 (1 if the tree has whiteouts, else 0) [default: that of a composefs image
    /// that is converted, otherwise 0-1]
    #[arg(help_heading = "composefs", long, value_name = "N|MIN-MAX", value_parser = parse_versions)]
    format_version: Option<(u32, u32)>,
    /// Hash of the digests that name objects and the image [default: sha256]. The repositories of composefs-rs and
    /// bootc use sha512
    #[arg(help_heading = "composefs", long, value_name = "HASH")]
    digest: Option<DigestHash>,
    /// Hard-link files of INPUT into the object store where possible. Do not change these files
    /// afterwards
    #[arg(help_heading = "composefs", long)]
    pub link_objects: bool,
}

/// The hash of a digest.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum DigestHash {
    Sha256,
    Sha512,
}

impl From<DigestHash> for Algorithm {
    fn from(hash: DigestHash) -> Self {
        match hash {
            DigestHash::Sha256 => Self::Sha256,
            DigestHash::Sha512 => Self::Sha512,
        }
    }
}

impl ComposefsArgs {
    pub fn options(&self, inline: Option<Inline>) -> Result<ComposefsOptions> {
        if self.objects.is_none() {
            let hint = "give the directory of the object store with --objects DIR";
            return Err(Failure::usage("composefs keeps files outside the image").hint(hint));
        }
        let mut options = ComposefsOptions::default();
        options.objects.clone_from(&self.objects);
        match inline {
            None => {}
            Some(Inline::Bytes(bytes)) => {
                options.inline = usize::try_from(bytes).unwrap_or(usize::MAX);
            }
            Some(Inline::None | Inline::Plain | Inline::All) => {
                let message = "--inline takes a number of bytes for composefs";
                return Err(Failure::usage(message));
            }
        }
        if let Some((min, max)) = self.format_version {
            (options.min_version, options.max_version) = (min, max);
        }
        if let Some(digest) = self.digest {
            options.digest = digest.into();
        }
        options.hard_links = self.link_objects;
        Ok(options)
    }

    /// Keeps the version of a composefs image that is converted, unless an option names one.
    pub fn keep_version(&self, image: &Image, writer: &mut Writer) {
        let Writer::Composefs(options) = writer else {
            return;
        };
        let version = image.driver().and_then(Composefs::version);
        if let (Some(version), None) =
            (version.filter(|at| *at <= VERSION_MAX), self.format_version)
        {
            (options.min_version, options.max_version) = (version, version);
        }
    }

    pub const fn given(&self) -> [Given; 4] {
        const OWN: &[NewFormat] = &[NewFormat::Composefs];
        [
            (self.objects.is_some(), "--objects", OWN),
            (self.format_version.is_some(), "--format-version", OWN),
            (self.digest.is_some(), "--digest", OWN),
            (self.link_objects, "--link-objects", OWN),
        ]
    }
}

fn parse_versions(text: &str) -> std::result::Result<(u32, u32), String> {
    let (min, max) = text.split_once('-').unwrap_or((text, text));
    match (min, max) {
        ("0", "0") => Ok((0, 0)),
        ("0", "1") => Ok((0, 1)),
        ("1", "1") => Ok((1, 1)),
        _ => Err("not 0, 1 or 0-1".to_string()),
    }
}
