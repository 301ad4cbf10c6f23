//! A tar archive as the input of a new image.

use std::io::{self, IsTerminal, Seek};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use forerun::build::{ImageOptions, Tree, from_image};
use forerun::vfs::VolumeInfo;
use forerun_sandbox::Sandbox;
use forerun_sys::memory_limit::MemoryLimit;

use crate::args::{ImageArgs, Limit, LimitArgs, SourceArgs, is_stdin};
use crate::context::Context;
use crate::error::{Failure, Result};
use crate::source::{PreparedImage, prepare};

/// An archive whose file is open. Nothing of it has been parsed.
pub struct Archive(PreparedImage);

impl Archive {
    /// Opens an archive, which may be compressed; standard input, from where it stands, for `-`.
    pub fn open(context: &Context, input: &Path, mut limits: LimitArgs) -> Result<Self> {
        // The writer knows how long names of its format may be: in exFAT up to 765 bytes.
        limits.limits.push(Limit::NameLength(usize::from(u16::MAX)));
        let stdin = io::stdin();
        if is_stdin(input) && stdin.is_terminal() {
            let failure = Failure::usage("standard input is a terminal, not a tar archive");
            return Err(failure.hint("tar -c DIR | forerun pack ... - OUTPUT"));
        }
        let offset = if is_stdin(input) {
            position(stdin.as_fd().try_clone_to_owned())
        } else {
            0
        };
        let args = ImageArgs {
            image: PathBuf::from(input),
            source: SourceArgs {
                format: Some("tar".to_string()),
                offset,
                cache: Some(cache_for_input()),
                ..SourceArgs::default()
            },
            limits,
            ..ImageArgs::default()
        };
        prepare(context, &args).map(Self)
    }

    /// Returns what messages call the archive.
    pub fn name(&self) -> String {
        self.0.name()
    }

    /// Returns whether it has no bytes at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds what reading the archive needs.
    pub fn with_index(&self, sandbox: Sandbox) -> Sandbox {
        self.0.with_index(sandbox)
    }

    /// Reads all of it but the contents of files. Returns what the driver says of the archive, too.
    pub fn read(self, context: &Context, options: &ImageOptions) -> Result<(Tree, VolumeInfo)> {
        let name = self.name();
        let image = context.open_prepared(self.0, None);
        let image = image.map_err(|failure| match failure.kind {
            "corrupt" | "unknown_format" => failure
                .hint("INPUT is a directory or a tar archive; forerun convert takes an image"),
            _ => failure,
        })?;
        let tree = from_image(image.reader(), options);
        let tree = tree.map_err(|error| Failure::from(error).of(name))?;
        Ok((tree, image.reader().fs().volume().clone()))
    }
}

/// Returns half of the usual cache size if memory is scarce, because the tables of the tree and of
/// the writer are in memory too. With 83,000 entries and 128 MiB, the whole process then takes 94
/// MiB instead of 102.
pub fn cache_for_input() -> u64 {
    const CACHE: u64 = 256 << 20;
    MemoryLimit::of_process().eighth(2 * CACHE) / 2
}

/// Returns the offset that a file has been read to; 0 for a pipe.
fn position(file: io::Result<std::os::fd::OwnedFd>) -> u64 {
    let file = file.map(std::fs::File::from);
    file.and_then(|mut file| file.stream_position())
        .unwrap_or(0)
}
