//! Makes composefs images.
//!
//! First it stores the contents: files up to [`ComposefsOptions::inline`] bytes stay in the image,
//! others become objects of a store, each once. Then it writes the metadata as an EROFS image.
//! Every byte of this image follows from the tree: the layout is that of the reference
//! implementation's format versions 0 and 1, so that the same tree has the same digest from every
//! writer. `docs/formats/composefs.md` describes the rules.

mod contents;
mod data;
mod dump;
mod flat;
mod homes;
mod layout;
mod objects;
mod output;
mod xattr;

use std::path::PathBuf;
use std::sync::Arc;

use forerun_build::{BuildError, ImageOutput, KeptProperties, Tree};
use forerun_io::Observer;

pub use data::{FileData, Files};
pub use dump::{DumpError, DumpLineError, read_dump};

use self::layout::Image;
use self::output::Output;
use crate::digest::Algorithm;
use crate::digest::Digest;

/// Largest file that the image itself can store.
const INLINE_MAX: usize = 4095;

/// The properties of nodes that an image stores.
pub const KEPT: KeptProperties = KeptProperties {
    xattrs: xattr::keeps,
    ..KeptProperties::ALL
};

/// The newest supported format version.
pub const VERSION_MAX: u32 = 1;

/// Options of a new image.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ComposefsOptions {
    /// The object store, created if it does not exist. Without a store, no contents are stored, and
    /// the image is useful only with a store that has its objects.
    pub objects: Option<PathBuf>,
    /// Largest file in bytes that the image itself stores. The digest depends on it; the reference
    /// implementation uses 64.
    pub inline: usize,
    /// Lowest format version to use: 0 or 1. Trees without whiteouts get it.
    pub min_version: u32,
    /// Highest format version to use. Trees with whiteouts get it.
    pub max_version: u32,
    /// The hash algorithm of the object digests, and of the image's digest.
    pub digest: Algorithm,
    /// Turn host files into objects with a hard link if possible, instead of a copy or shared
    /// blocks. A later change of such a file changes the object.
    pub hard_links: bool,
    /// Threads that read and hash; 0 means one per CPU.
    pub threads: usize,
}

impl Default for ComposefsOptions {
    fn default() -> Self {
        Self {
            objects: None,
            inline: 64,
            min_version: 0,
            max_version: VERSION_MAX,
            digest: Algorithm::default(),
            hard_links: false,
            threads: 0,
        }
    }
}

impl ComposefsOptions {
    /// Checks the ranges of the values; fails with the first invalid one.
    pub fn validate(&self) -> Result<(), BuildError> {
        if self.inline > INLINE_MAX {
            let most = INLINE_MAX;
            return Err(failed(format!(
                "files of {} bytes cannot be stored in the image; at most {most} are allowed",
                self.inline
            )));
        }
        if self.min_version > self.max_version || self.max_version > VERSION_MAX {
            return Err(failed(format!(
                "versions {} to {} were requested; only 0 and 1 are supported",
                self.min_version, self.max_version
            )));
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    pub len: u64,
    /// The image's fs-verity digest, which identifies composefs images.
    pub digest: Digest,
}

/// Stores the contents of `tree` and writes its metadata.
///
/// # Errors
/// [`BuildError::Format`] for invalid options and for trees that the format cannot store: names
/// over 255 bytes, link targets over 4095, files over 8 PiB, device numbers over 12 and 20 bits.
/// [`BuildError::Content`] if a file cannot be read or has changed since the scan,
/// [`BuildError::Host`] if the store cannot be created.
pub fn write(
    tree: &Tree,
    options: &ComposefsOptions,
    out: &mut dyn ImageOutput,
    observer: &Arc<Observer>,
) -> Result<Written, BuildError> {
    options.validate()?;
    let files = objects::take_all(tree, options)?;
    write_metadata(tree, &files, options, out, observer)
}

/// Writes the metadata of a tree whose contents are stored as `files` describes. Reads no contents.
pub fn write_metadata(
    tree: &Tree,
    files: &Files,
    options: &ComposefsOptions,
    out: &mut dyn ImageOutput,
    observer: &Arc<Observer>,
) -> Result<Written, BuildError> {
    options.validate()?;
    let version = |whiteouts| {
        if whiteouts {
            options.max_version
        } else {
            options.min_version
        }
    };
    let tree = flat::flatten(tree, files, |whiteouts| version(whiteouts) >= 1)?;
    let image = Image::new(&tree)?;
    let mut out = Output::new(out, observer, options.digest);
    image.write(version(tree.whiteouts), &mut out)?;
    let (len, digest) = out.finish()?;
    Ok(Written { len, digest })
}

/// Returns the error for a tree that the format cannot store.
fn failed(reason: String) -> BuildError {
    BuildError::Format {
        format: "composefs",
        reason,
    }
}
