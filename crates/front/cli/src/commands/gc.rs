//! `forerun gc`: removes objects to which no image refers.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use bytesize::ByteSize;
use clap::{Args, ValueHint};
use forerun::unstable::objects::Collection;
use forerun::vfs::Error;
use forerun_io::FileSource;
use forerun_sandbox::Sandbox;
use serde_json::json;

use crate::args::LimitArgs;
use crate::confine::OWNERS;
use crate::context::Context;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::output::Output;
use crate::size::{count_of, counted};

/// List or remove unused objects of a composefs store
///
/// Name all images that use the store. gc lists the objects that none of them uses, and removes
/// them with --delete. It removes nothing if an image cannot be read, refers to an object in an
/// unknown way, or has no object in the store. It refuses a repository of composefs-rs or bootc. Do
/// not add images to the store while gc runs.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  forerun gc --objects store *.cfs              show what would be removed
  forerun gc --delete --objects store *.cfs     remove the unused objects")]
pub struct GcArgs {
    /// Object store
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub objects: PathBuf,
    /// Remove the objects that no image refers to
    #[arg(long)]
    pub delete: bool,
    /// Only show what would be removed [default]
    #[arg(short = 'n', long, conflicts_with = "delete")]
    pub dry_run: bool,
    /// Remove all objects, because no image uses the store any more
    #[arg(long, conflicts_with = "images")]
    pub all: bool,
    /// All composefs images that use the store
    #[arg(value_name = "IMAGE", value_hint = ValueHint::FilePath, required_unless_present = "all")]
    pub images: Vec<PathBuf>,
    #[command(flatten)]
    pub limits: LimitArgs,
}

pub fn run(context: &Context, args: &GcArgs) -> Result {
    let in_store = |error: std::io::Error| Failure::output(&error).of(args.objects.display());
    let mut collection = Collection::open(&args.objects).map_err(in_store)?;
    let mut sources = Vec::new();
    for path in &args.images {
        let source = FileSource::open(path).map_err(|error| Error::io(0, 0, error));
        let source = source.map_err(|error| Failure::from(error).of(path.display()))?;
        source.open_all();
        sources.push((path, source));
    }
    context.confine(&Sandbox::new().write_below(&args.objects).keep(OWNERS));
    for (path, source) in sources {
        let failed = |error: Error| Failure::from(error).of(path.display());
        let file = source.file().metadata();
        let file = file.map_err(|error| Failure::source(&error).of(path.display()))?;
        let file = Some((file.dev(), file.ino()));
        let kept = collection.keep(Arc::new(source), file, &args.limits.limits());
        kept.map_err(failed)?;
    }
    let dry_run = !args.delete;
    let mut out = Output::stdout()?;
    let mut names = Vec::new();
    let json = context.global.json;
    let collected = collection.collect(dry_run, &mut |name| names.push(name));
    let collected = collected.map_err(in_store)?;
    if json {
        out.json(&json!({
            "removed": names,
            "dry_run": dry_run,
            "kept_objects": collected.kept,
            "bytes": collected.bytes,
        }))?;
    } else if dry_run || context.global.verbose > 0 {
        for name in &names {
            out.line(name)?;
        }
    }
    out.finish()?;
    let verb = if dry_run {
        "would be removed with --delete"
    } else {
        "removed"
    };
    context.note(&format!(
        "{} needed by {}; {}, {}, {verb}",
        counted(collected.kept, "object", "objects"),
        counted(count_of(args.images.len()), "image", "images"),
        counted(collected.removed, "file", "files"),
        ByteSize(collected.bytes),
    ));
    Ok(Exit::Ok)
}
