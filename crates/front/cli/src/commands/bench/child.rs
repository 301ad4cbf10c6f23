//! `forerun __bench`: the processes that do the measured work. Hidden: `forerun bench` starts them.
//!
//! Work at paths of a mount is that of `measure`. Work without a mount opens the image here, in the
//! sandbox of every command that reads one.

use std::ffi::OsString;
use std::io::{self, Read};

use crate::measure::digest::{Kind, TreeDigest, of_stream};
use crate::measure::work::{self, Work};
use clap::{Args, Subcommand, ValueEnum};
use forerun::vfs::{FileType, FollowLast, NodeId, resolve};
use forerun::{Image, Reader};
use serde_json::json;

use crate::args::{ImageArgs, image_path};
use crate::context::{Context, image_name};
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::output::Output;

/// Bytes of one read of a file, as cat(1) has them.
const CHUNK: usize = 128 << 10;
/// The same in the legacy way, as the kernel asks without readahead.
const PAGE: usize = 4 << 10;

/// Do a piece of work that `forerun bench` measures
#[derive(Args, Debug)]
pub struct BenchChildArgs {
    /// The work
    #[command(subcommand)]
    pub child: BenchChild,
}

/// The work of a process.
// There is one of it in a run.
#[allow(clippy::large_enum_variant)]
#[derive(Debug, Subcommand)]
pub enum BenchChild {
    /// Print what an image has to measure, as JSON
    Survey {
        #[command(flatten)]
        image: ImageArgs,
    },
    /// Read an image without a mount
    Library(LibraryArgs),
    #[command(flatten)]
    Mounted(Work),
}

/// Work without a mount.
#[derive(Args, Debug)]
pub struct LibraryArgs {
    /// The work
    #[arg(long, value_enum)]
    pub work: LibraryWork,
    /// The file in the image, if the work is about one
    #[arg(long, default_value = "/")]
    pub path: OsString,
    /// Bytes of the file that are read at the most
    #[arg(long, default_value_t = u64::MAX)]
    pub most: u64,
    /// Read in the legacy way, page by page
    #[arg(long)]
    pub legacy: bool,
    #[command(flatten)]
    pub image: ImageArgs,
}

/// Pieces of work without a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LibraryWork {
    /// Read a file.
    Cat,
    /// Read pages of a file at places of a seeded sequence.
    Random,
    /// Walk, and read every file when it is met.
    Tree,
    /// Walk, with all metadata.
    List,
    /// Compute the digest of a file.
    FileDigest,
    /// Compute the digest of the tree.
    TreeDigest,
}

pub fn run(context: &Context, args: &BenchChildArgs) -> Result {
    let text = match &args.child {
        BenchChild::Survey { image } => survey(context, image)?,
        BenchChild::Library(args) => library(context, args)?,
        BenchChild::Mounted(work) => work::run(work).map_err(|error| failed(&error))?,
    };
    let mut out = Output::stdout()?;
    out.line(text)?;
    out.finish()?;
    Ok(Exit::Ok)
}

fn failed(error: &crate::measure::Error) -> Failure {
    Failure::new(Exit::Source, "io", format!("{error:#}"))
}

fn library(context: &Context, args: &LibraryArgs) -> Result<String> {
    let mut image = args.image.clone();
    image.source.legacy_blocks = args.legacy;
    let image = context.open(&image)?;
    let named = |failure: Failure| failure.of(image_name(&args.image));
    let reader = image.reader();
    let file = || -> Result<(NodeId, u64)> {
        let path = image_path(&args.path);
        let node = resolve(reader.fs(), path, FollowLast::No, reader.limits())?;
        Ok((node, reader.fs().metadata(node)?.size))
    };
    match args.work {
        LibraryWork::Cat => {
            let (node, _) = file().map_err(named)?;
            let mut stream = stream(reader, node).take(args.most);
            let chunk = if args.legacy { PAGE } else { CHUNK };
            let bytes = consume(&mut stream, chunk);
            let bytes = bytes.map_err(|error| named(Failure::source(&error)))?;
            Ok(format!("1 {bytes}"))
        }
        LibraryWork::FileDigest => {
            let (node, _) = file().map_err(named)?;
            let digest = of_stream(&mut stream(reader, node), args.most);
            let digest = digest.map_err(|error| named(Failure::source(&error)))?;
            Ok(digest.to_string())
        }
        LibraryWork::Random => {
            let (node, len) = file().map_err(named)?;
            let read = |page: &mut [u8], at| match reader.read_into(node, at, page) {
                Ok(count) if count == page.len() => Ok(()),
                Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) => Err(io::Error::other(error)),
            };
            let found = work::random(len, work::READS, work::THREADS, &read);
            found.map_err(|error| named(failed(&error)))
        }
        LibraryWork::Tree => read_all(&image).map_err(named),
        LibraryWork::List => list(&image).map_err(named),
        LibraryWork::TreeDigest => digest(&image).map_err(named),
    }
}

/// A file of an image as a stream.
struct Stream<'r> {
    reader: &'r Reader,
    node: NodeId,
    at: u64,
}

fn stream(reader: &Reader, node: NodeId) -> Stream<'_> {
    Stream {
        reader,
        node,
        at: 0,
    }
}

impl Read for Stream<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read_into(self.node, self.at, out);
        let count = read.map_err(io::Error::other)?;
        self.at = self
            .at
            .saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
        Ok(count)
    }
}

/// Reads a stream to its end, and returns its length.
fn consume(stream: &mut impl Read, chunk: usize) -> io::Result<u64> {
    let mut chunk = vec![0; chunk];
    let mut bytes = 0_u64;
    loop {
        let count = stream.read(&mut chunk)?;
        if count == 0 {
            return Ok(bytes);
        }
        bytes = bytes.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
    }
}

fn read_all(image: &Image) -> Result<String> {
    let reader = image.reader();
    let (mut files, mut bytes) = (0_u64, 0_u64);
    for entry in reader.walk(reader.fs().root()) {
        let entry = entry.map_err(forerun::vfs::Error::from)?;
        let metadata = entry
            .metadata
            .map_err(|e| Failure::from(e).at(&entry.path))?;
        if metadata.kind == FileType::Regular {
            let read = consume(&mut stream(reader, entry.node), CHUNK);
            files += 1;
            bytes += read.map_err(|error| Failure::source(&error).at(&entry.path))?;
        }
    }
    Ok(format!("{files} {bytes}"))
}

fn list(image: &Image) -> Result<String> {
    let reader = image.reader();
    let mut entries = 0_u64;
    for entry in reader.walk(reader.fs().root()) {
        let entry = entry.map_err(forerun::vfs::Error::from)?;
        let metadata = entry.metadata;
        metadata.map_err(|e| Failure::from(e).at(&entry.path))?;
        entries += 1;
    }
    Ok(format!("{entries} entries"))
}

fn digest(image: &Image) -> Result<String> {
    let reader = image.reader();
    let mut digest = TreeDigest::default();
    for entry in reader.walk(reader.fs().root()) {
        let entry = entry.map_err(forerun::vfs::Error::from)?;
        let metadata = entry
            .metadata
            .map_err(|e| Failure::from(e).at(&entry.path))?;
        if entry.path.is_empty() {
            continue;
        }
        match metadata.kind {
            FileType::Directory => digest.add(&entry.path, Kind::Directory, &[]),
            FileType::Regular => {
                let contents = of_stream(&mut stream(reader, entry.node), u64::MAX);
                let contents = contents.map_err(|error| Failure::source(&error).at(&entry.path))?;
                digest.add(&entry.path, Kind::File, contents.as_bytes());
            }
            FileType::Symlink => {
                let target = reader.fs().read_link(entry.node)?;
                digest.add(&entry.path, Kind::Link, &target);
            }
            _ => {}
        }
    }
    Ok(digest.text())
}

/// Returns the facts about an image that decide what is measured.
fn survey(context: &Context, args: &ImageArgs) -> Result<String> {
    let image = context.open(args)?;
    let named = |failure: Failure| failure.of(image_name(args));
    let reader = image.reader();
    let (mut files, mut others, mut bytes) = (0_u64, 0_u64, 0_u64);
    let mut largest: Option<(Vec<u8>, u64)> = None;
    for entry in reader.walk(reader.fs().root()) {
        let entry = entry.map_err(|error| named(forerun::vfs::Error::from(error).into()))?;
        let metadata = entry
            .metadata
            .map_err(|e| named(Failure::from(e).at(&entry.path)))?;
        if metadata.kind != FileType::Regular {
            others += 1;
            continue;
        }
        files += 1;
        bytes = bytes.saturating_add(metadata.size);
        if largest.as_ref().is_none_or(|(_, len)| metadata.size > *len) {
            largest = Some((entry.path, metadata.size));
        }
    }
    let (path, len) = largest.unwrap_or_default();
    let hex: String = path.iter().map(|byte| format!("{byte:02x}")).collect();
    let survey = json!({
        "format": reader.fs().volume().format,
        "offset": image.offset(),
        "files": files,
        "others": others,
        "bytes": bytes,
        "largest_hex": hex,
        "largest_bytes": len,
    });
    Ok(survey.to_string())
}
