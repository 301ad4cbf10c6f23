//! `forerun __bench`: the processes that do the measured work. Hidden, because only `forerun bench`
//! starts them.
//!
//! Work without a mount opens the image here, in the same sandbox as every command that reads one.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, Subcommand};
use forerun::Reader;
use forerun::vfs::{FileType, FollowLast, NodeId, resolve};
use serde_json::json;

use crate::args::ImageArgs;
use crate::context::{Context, image_name};
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::measure::work::{self, BUFFER, Below, Contents, Found, Kind, Place, Work};
use crate::output::Output;

/// Do a piece of work that `forerun bench` measures
#[derive(Args, Debug)]
pub struct BenchChildArgs {
    /// Where the work is done
    #[command(subcommand)]
    pub child: BenchChild,
}

// A run has only one command.
#[allow(clippy::large_enum_variant)]
#[derive(Debug, Subcommand)]
pub enum BenchChild {
    /// Print what an image has to measure, as JSON
    Survey {
        #[command(flatten)]
        image: ImageArgs,
    },
    /// Work in an image without a mount
    Library {
        #[arg(long, value_enum)]
        work: Work,
        /// The file in the image, if the work is about one
        #[arg(long, default_value = "/")]
        path: PathBuf,
        /// Bytes of the file that are read at the most
        #[arg(long, default_value_t = u64::MAX)]
        most: u64,
        /// Read in the legacy way, page by page
        #[arg(long)]
        legacy: bool,
        #[command(flatten)]
        image: ImageArgs,
    },
    /// Work at paths of a mount
    Mounted {
        #[arg(value_enum)]
        work: Work,
        /// Bytes of each file that are read at the most
        #[arg(long, default_value_t = u64::MAX)]
        most: u64,
        /// Files, or the directory where a walk starts
        #[arg(required = true)]
        paths: Vec<PathBuf>,
    },
}

pub fn run(context: &Context, args: &BenchChildArgs) -> Result {
    let text = match &args.child {
        BenchChild::Survey { image } => survey(context, image)?,
        BenchChild::Library {
            work,
            path,
            most,
            legacy,
            image,
        } => {
            let mut args = image.clone();
            args.source.legacy_blocks = *legacy;
            let opened = context.open(&args)?;
            // The size of a kernel request without readahead.
            let chunk = if *legacy { 4 << 10 } else { BUFFER };
            let place = Inside(opened.reader());
            let done = work::run(*work, &place, std::slice::from_ref(path), *most, chunk);
            done.map_err(|error| failed(&error).of(image_name(image)))?
        }
        BenchChild::Mounted { work, most, paths } => {
            let place = Below(paths.first().cloned().unwrap_or_default());
            work::run(*work, &place, paths, *most, BUFFER).map_err(|error| failed(&error))?
        }
    };
    let mut out = Output::stdout()?;
    out.line(text)?;
    out.finish()?;
    Ok(Exit::Ok)
}

fn failed(error: &crate::measure::Error) -> Failure {
    Failure::new(Exit::Source, "io", format!("{error:#}"))
}

/// An image that is read without a mount.
struct Inside<'r>(&'r Reader);

impl Place for Inside<'_> {
    fn walk(&self, each: &mut dyn FnMut(&Found<'_>) -> anyhow::Result<()>) -> anyhow::Result<()> {
        for entry in self.0.walk(self.0.fs().root()) {
            let entry = entry.map_err(forerun::vfs::Error::from)?;
            let named = || OsStr::from_bytes(&entry.path).display().to_string();
            let kind = match entry.metadata.with_context(named)?.kind {
                FileType::Directory => Kind::Directory,
                FileType::Regular => Kind::File,
                FileType::Symlink => Kind::Link,
                _ => Kind::Other,
            };
            let contents = || -> anyhow::Result<Box<dyn Contents>> {
                if kind == Kind::Link {
                    return Ok(Box::new(self.0.fs().read_link(entry.node)?.to_vec()));
                }
                Ok(Box::new(Node {
                    reader: self.0,
                    node: entry.node,
                }))
            };
            // The root is not an entry of a mounted directory.
            if !entry.path.is_empty() {
                let found = Found {
                    path: &entry.path,
                    kind,
                    contents: &contents,
                };
                each(&found).with_context(named)?;
            }
        }
        Ok(())
    }

    fn open(&self, path: &Path, _as_cat: bool) -> anyhow::Result<Box<dyn Contents + '_>> {
        let path = path.as_os_str().as_bytes();
        let node = resolve(self.0.fs(), path, FollowLast::No, self.0.limits())?;
        Ok(Box::new(Node {
            reader: self.0,
            node,
        }))
    }
}

struct Node<'r> {
    reader: &'r Reader,
    node: NodeId,
}

impl Contents for Node<'_> {
    fn len(&self) -> anyhow::Result<u64> {
        Ok(self.reader.fs().metadata(self.node)?.size)
    }

    fn read_at(&self, out: &mut [u8], at: u64) -> io::Result<usize> {
        self.reader
            .read_into(self.node, at, out)
            .map_err(io::Error::other)
    }
}

/// Returns the facts about an image that decide what is measured.
fn survey(context: &Context, args: &ImageArgs) -> Result<String> {
    let image = context.open(args)?;
    let named = |failure: Failure| failure.of(image_name(args));
    let reader = image.reader();
    let (mut files, mut bytes) = (0_u64, 0_u64);
    let mut largest: Option<(Vec<u8>, u64)> = None;
    for entry in reader.walk(reader.fs().root()) {
        let entry = entry.map_err(|error| named(forerun::vfs::Error::from(error).into()))?;
        let metadata = entry
            .metadata
            .map_err(|e| named(Failure::from(e).at(&entry.path)))?;
        if metadata.kind != FileType::Regular {
            continue;
        }
        files += 1;
        bytes = bytes.saturating_add(metadata.size);
        if largest.as_ref().is_none_or(|(_, len)| metadata.size > *len) {
            largest = Some((entry.path, metadata.size));
        }
    }
    let (path, len) = largest.unwrap_or_default();
    let survey = json!({
        "format": reader.fs().volume().format,
        "offset": image.offset(),
        "files": files,
        "bytes": bytes,
        "largest": path,
        "largest_bytes": len,
    });
    Ok(survey.to_string())
}
