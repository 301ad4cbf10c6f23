//! `forerun scan`: what is in a file of unknown contents, and how to open it.

mod extract;
mod inside;
mod show;

use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use forerun::OpenOptions;
use forerun::build::spool_file;
use forerun::unstable::disk::scan::ScanOptions;
use forerun_export::{ExportError, ExtractOptions};

use crate::args::{ImageArgs, LimitArgs, RemoteArgs, SourceArgs};
use crate::confine::capabilities;
use crate::context::{Context, image_name};
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::output::Output;
use crate::place::OutputDir;
use crate::progress::Progress;
use crate::{size, spool};
use extract::Extraction;
use inside::Descent;
use show::ShownImage;

/// List what a file of unknown contents holds: firmware, a disk, an executable
///
/// Finds images of all formats at any byte, and shows the command that opens each. Also lists what forerun does
/// not open: other filesystems, archives, compressed streams, kernels, device trees, certificates and keys. The
/// bytes between are listed as padding, or as unknown with their entropy in bits per byte: 8 for compressed
/// and encrypted data. Superblocks and lengths are verified, and most checksums.
///
/// Exit status: 0 if something was found, 1 if nothing was found.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  forerun scan firmware.bin                  images, and how to open them
  forerun scan /dev/sdb                      partitions and their contents
  forerun scan --tree firmware.bin           also inside streams and images
  forerun scan --extract out firmware.bin    all of it, as trees and files
  forerun scan --json firmware.bin           for programs")]
pub struct ScanArgs {
    #[cfg_attr(
        feature = "network",
        doc = "File, device, https://, s3:// or oci:// name; - for standard input"
    )]
    #[cfg_attr(not(feature = "network"), doc = "File or device; - for standard input")]
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub file: PathBuf,
    /// Also search inside the images that are found
    #[arg(short, long)]
    pub all: bool,
    /// Go into what is found
    ///
    /// Streams are decoded, and the files of images searched, up to four levels deep and 16 GiB in all.
    #[arg(short, long)]
    pub tree: bool,
    /// Write what is found to DIR, as trees and files
    ///
    /// Images are written as trees, everything else as files. Names begin with the offset. Padding is not written. DIR/report.json has the result as --json prints it, and
    /// where each finding was written to. Nothing in DIR is overwritten.
    #[arg(short = 'x', long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub extract: Option<PathBuf>,
    /// Byte offset to start at, such as 1M [default: 0]
    #[arg(long, value_name = "BYTES", value_parser = size::parse, default_value = "0", hide_default_value = true)]
    pub offset: u64,
    /// Number of bytes to search [default: to the end]
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    pub size: Option<u64>,
    /// Search only this partition
    #[arg(long, value_name = "N", conflicts_with_all = ["offset", "size"])]
    pub partition: Option<u32>,
    /// Read without a lock, even if others write to the file
    #[arg(long)]
    pub no_lock: bool,
    #[command(flatten)]
    pub limits: LimitArgs,
    #[command(flatten)]
    pub remote: RemoteArgs,
}

pub fn run(context: &Context, args: &ScanArgs) -> Result {
    let image_args = args.image_args();
    let name = image_name(&image_args);
    let prepared = context.prepare(&image_args)?;
    let mut sandbox = prepared.sandbox();
    let place = match &args.extract {
        Some(dir) => Some(make_place(dir)?),
        None => None,
    };
    if let Some(place) = &place {
        sandbox = place
            .sandbox(sandbox)
            .keep(capabilities(&ExtractOptions::default()));
    }
    let decoded = if args.tree {
        let file = spool_file();
        Some(file.map_err(|error| Failure::output(&error).of("temporary file"))?)
    } else {
        None
    };
    // Nested archives may be compressed as a whole.
    let nested =
        spool::prepare(None, &OpenOptions::default()).filter(|_| args.tree || place.is_some());
    context.confine(&sandbox);
    let (source, mut options) = prepared.into_source(context)?;
    options.spool = nested.or(options.spool);
    let mut descent = Descent::new(context, &options, decoded);
    let progress = Progress::new(context, "searching", source.len());
    let mut done = 0;
    let scanned = descent.level(
        &source,
        ScanOptions {
            all: args.all,
            offset: options.offset,
            size: options.size,
        },
        &mut |bytes| {
            progress.add(bytes.saturating_sub(done));
            done = bytes;
        },
    );
    drop(progress);
    let mut level = scanned.map_err(|failure| failure.of(&name))?;
    let is_cut = descent.is_cut;
    let mut exit = Exit::Ok;
    if let Some(dir) = &args.extract {
        let mut extraction = Extraction::new(context, &options, dir);
        extraction.level(&mut level, Path::new(""))?;
        if !extraction.failures.is_empty() {
            exit = Exit::Partial;
            context.report_all(extraction.failures);
        }
    }
    let shown = ShownImage {
        name: &name,
        at_start: options.offset == 0,
        level: &level,
        is_complete: !level.scanned.is_cut && !is_cut,
    };
    if let Some(dir) = &args.extract {
        extract::report(dir, shown.json().to_string().as_bytes())?;
    }
    print(context, &shown)?;
    if !shown.is_complete {
        context.note(&format!("{name}: there is more than can be listed"));
    }
    if !level.scanned.findings.iter().any(|it| it.kind.is_known()) {
        context.note(&format!("{name}: nothing of a known kind was found"));
        return Ok(Exit::Image);
    }
    Ok(exit)
}

fn print(context: &Context, shown: &ShownImage<'_>) -> Result<()> {
    let mut out = Output::stdout()?;
    if context.global.json {
        out.json(&shown.json())?;
    } else if !shown.level.scanned.findings.is_empty() {
        out.text(shown.table())?;
    }
    out.finish()
}

fn make_place(dir: &Path) -> Result<OutputDir> {
    if dir.join(extract::REPORT).exists() {
        let failure = Failure::usage("holds an extraction already; name another directory");
        return Err(failure.of(dir.display()));
    }
    let place = OutputDir::make(dir);
    Ok(place.map_err(|source| ExportError::Target {
        path: dir.into(),
        source,
    })?)
}

impl ScanArgs {
    fn image_args(&self) -> ImageArgs {
        ImageArgs {
            image: self.file.clone(),
            source: SourceArgs {
                offset: self.offset,
                size: self.size,
                partition: self.partition,
                no_lock: self.no_lock,
                remote: self.remote.clone(),
                ..SourceArgs::default()
            },
            limits: self.limits.clone(),
            ..ImageArgs::default()
        }
    }
}
