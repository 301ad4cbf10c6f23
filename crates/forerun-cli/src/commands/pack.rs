//! `forerun pack`: an image from a directory or a tar archive.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{ArgGroup, Args, ValueEnum, ValueHint};
use forerun::build::{Patterns, ScanOptions, TarInput, TarOptions, Tree, read_tar, scan};
use forerun::{Observer, RomfsOptions, Writer};
use serde_json::json;

use crate::args::LimitArgs;
use crate::context::Context;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::output::Output;
use crate::progress::{Progress, Watched};
use crate::size;
use crate::source::is_stdin;
use crate::target::{Target, is_same_file};

/// Make an image from a directory or a tar archive
///
/// The image appears under its name only when it is complete. The same input gives the same image,
/// byte for byte; times later than SOURCE_DATE_EPOCH are set to it where the format keeps times.
#[derive(Args, Debug)]
#[command(override_usage = "forerun pack [OPTIONS] --format <NAME> <INPUT> <OUTPUT>")]
#[command(group = ArgGroup::new("to").required(true).args(["output", "output_option"]))]
#[command(after_help = "\
Examples:
  forerun pack --format romfs --align 4096 dir new.img
  tar -c dir | forerun pack --format romfs - new.img
  forerun pack --format romfs dir - | forerun ls -lR -")]
pub struct PackArgs {
    /// Format of the image
    #[arg(long, value_name = "NAME")]
    pub format: NewFormat,
    /// Directory or tar archive; - for an archive on standard input
    #[arg(value_name = "INPUT", value_hint = ValueHint::AnyPath)]
    pub input: PathBuf,
    /// The image to make; - for standard output
    #[arg(value_name = "OUTPUT", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    /// The image to make, as an option
    #[arg(short, long = "output", id = "output_option", value_name = "OUTPUT", value_hint = ValueHint::FilePath)]
    pub output_option: Option<PathBuf>,
    /// Replace OUTPUT if it exists
    #[arg(long)]
    pub force: bool,
    /// Start the data of each file at a multiple of this: a power of two from 16 to 64K. With 4096,
    /// reads of pages go straight through [default: 16]
    #[arg(long, value_name = "BYTES", value_parser = parse_align)]
    pub align: Option<u32>,
    /// Volume name [default: rom]
    #[arg(long, value_name = "NAME")]
    pub volume_name: Option<String>,
    /// Leave out what matches, with everything below it; may be given more than once
    #[arg(long, value_name = "GLOB")]
    pub exclude: Vec<String>,
    #[command(flatten)]
    pub limits: LimitArgs,
}

/// The formats that can be made.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum NewFormat {
    /// Small and simple, read by Linux; keeps no owners, permissions or times
    Romfs,
}

/// Runs it.
pub fn run(context: &Context, args: &PackArgs) -> Result {
    let output = args.output.as_ref().or(args.output_option.as_ref());
    let output = output.ok_or_else(|| Failure::usage("no OUTPUT"))?;
    if is_same_file(&args.input, output) {
        let failure = Failure::usage("input and output are the same file");
        return Err(failure.of(output.display()));
    }
    let exclude = Patterns::new(&args.exclude)?;
    let latest = source_date_epoch()?;
    let observer = Arc::new(Observer::default());
    context.observe(&observer);
    let writer = writer(args);
    let mut target = Target::create(output, args.force, "an image")?;
    let tree = match is_dir(&args.input)? {
        true => {
            // The output may lie in the input; it must not become a part of itself.
            let old = output.metadata().ok();
            let new = target.file().metadata().ok();
            let ids = old.into_iter().chain(new);
            let skip = ids
                .map(|metadata| (metadata.dev(), metadata.ino()))
                .collect();
            let options = ScanOptions {
                exclude,
                xattrs: false,
                skip,
                latest,
            };
            scan(&args.input, &options)?
        }
        false => {
            let limits = args.limits.limits();
            let options = TarOptions {
                exclude,
                latest,
                limits,
            };
            let read = read_tar(open_tar(&args.input)?, &options);
            read.map_err(|error| Failure::from(error).of(input_name(&args.input)))?
        }
    };
    let len = write(context, &writer, &tree, &mut target, &observer)?;
    let name = target.name.clone();
    target.commit()?;
    if context.global.json && !is_stdin(output) {
        let mut out = Output::stdout()?;
        out.json(&json!({
            "output": name,
            "format": writer.name(),
            "image_bytes": len,
            "content_bytes": tree.content_bytes(),
            "nodes": tree.len(),
        }))?;
        out.finish()?;
    }
    Ok(Exit::Ok)
}

fn write(
    context: &Context,
    writer: &Writer,
    tree: &Tree,
    target: &mut Target,
    observer: &Arc<Observer>,
) -> Result<u64> {
    let progress = Progress::new(context, "packing", tree.content_bytes());
    let mut watched = Watched {
        inner: target.file(),
        progress: &progress,
    };
    let written = writer.write(tree, &mut watched, observer);
    written.map_err(|error| {
        let is_output = matches!(error, forerun::build::BuildError::Output { .. });
        let failure = Failure::from(error);
        if is_output {
            failure.of(&target.name)
        } else {
            failure
        }
    })
}

fn writer(args: &PackArgs) -> Writer {
    match args.format {
        NewFormat::Romfs => {
            let mut options = RomfsOptions::default();
            if let Some(align) = args.align {
                options.align = align;
            }
            if let Some(name) = &args.volume_name {
                options.volume_name = name.clone().into_bytes();
            }
            Writer::Romfs(options)
        }
    }
}

fn input_name(input: &Path) -> String {
    if is_stdin(input) {
        "standard input".to_string()
    } else {
        input.display().to_string()
    }
}

fn is_dir(input: &Path) -> Result<bool> {
    if is_stdin(input) {
        return Ok(false);
    }
    match input.metadata() {
        Ok(metadata) => Ok(metadata.is_dir()),
        Err(error) => Err(Failure::source(&error).of(input.display())),
    }
}

fn open_tar(input: &Path) -> Result<TarInput> {
    let failed = |error: io::Error| Failure::source(&error).of(input_name(input));
    let file = if is_stdin(input) {
        let stdin = io::stdin();
        if io::IsTerminal::is_terminal(&stdin) {
            let failure = Failure::usage("standard input is a terminal, not a tar archive");
            return Err(failure.hint("tar -c DIR | forerun pack ... - OUTPUT"));
        }
        File::from(stdin.as_fd().try_clone_to_owned().map_err(failed)?)
    } else {
        File::open(input).map_err(failed)?
    };
    Ok(if file.metadata().map_err(failed)?.is_file() {
        TarInput::File(file)
    } else {
        TarInput::Stream(Box::new(file))
    })
}

/// The time that no time in an output may be later than, where the environment sets one.
pub fn source_date_epoch() -> Result<Option<i64>> {
    let Some(value) = std::env::var_os("SOURCE_DATE_EPOCH") else {
        return Ok(None);
    };
    let seconds = value.to_str().and_then(|text| text.parse().ok());
    match seconds {
        Some(seconds) => Ok(Some(seconds)),
        None => {
            let value = value.to_string_lossy();
            let message = format!("SOURCE_DATE_EPOCH={value} is not a number of seconds");
            Err(Failure::usage(message))
        }
    }
}

fn parse_align(text: &str) -> std::result::Result<u32, String> {
    let bytes = size::parse(text)?;
    match u32::try_from(bytes) {
        Ok(align) if align.is_power_of_two() && (16..=65536).contains(&align) => Ok(align),
        _ => Err("not a power of two from 16 to 64K".to_string()),
    }
}
