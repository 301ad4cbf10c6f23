//! `forerun extract`: files to disk, never outside of the target directory.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use forerun_export::{ExtractOptions, ExtractReport, extract};
use serde_json::{Value, json};

use super::select::SelectArgs;
use crate::args::ImageArgs;
use crate::context::{Context, image_name};
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::output::Output;
use crate::progress::Progress;

/// Copy files of an image to disk
///
/// Paths keep their directories: /etc/passwd becomes DIR/etc/passwd. Nothing is written outside of
/// DIR, whatever the image says, and nothing is overwritten without --force. What cannot be done is
/// listed, the rest is done, and the exit status is 6.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  forerun extract -C out firmware.img
  forerun extract -C out firmware.img /etc /usr/bin
  forerun extract -C out --include '*.conf' --exclude '/etc/ssl' firmware.img")]
pub struct ExtractArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// Where to; it is made if it is missing
    #[arg(short = 'C', long, value_name = "DIR", default_value = ".", value_hint = ValueHint::DirPath)]
    pub directory: PathBuf,
    /// Replace what is there already
    #[arg(long)]
    pub force: bool,
    /// Make device nodes too (root only)
    #[arg(long)]
    pub devices: bool,
    /// Keep set-user-id, set-group-id and sticky bits
    #[arg(long)]
    pub special_bits: bool,
    /// Keep owners, where the format has them (root only)
    #[arg(long)]
    pub owners: bool,
    #[command(flatten)]
    pub select: SelectArgs,
}

/// Runs it.
pub fn run(context: &Context, args: &ExtractArgs) -> Result {
    let selection = args.select.selection()?;
    let image = context.open(&args.image)?;
    let name = image_name(&args.image);
    let options = ExtractOptions {
        force: args.force,
        devices: args.devices,
        special_bits: args.special_bits,
        owners: args.owners,
        threads: args.image.source.threads.map_or(0, usize::from),
    };
    let progress = Progress::new(context, "extracting", 0);
    let dir = &args.directory;
    let report = extract(image.reader(), &selection, dir, &options, &progress);
    drop(progress);
    let report = report.map_err(|error| named(error.into(), &name))?;
    finish(context, &name, report)
}

fn finish(context: &Context, name: &str, mut report: ExtractReport) -> Result {
    let failures: Vec<Failure> = std::mem::take(&mut report.failures)
        .into_iter()
        .map(|error| explained(named(error.into(), name)))
        .collect();
    let failed = failures.len();
    if context.global.json {
        let mut out = Output::stdout()?;
        out.json(&to_json(name, &report, &failures))?;
        out.finish()?;
    } else {
        context.report_all(failures);
    }
    if failed > 1 {
        context.note(&format!("{name}: {failed} entries were not extracted"));
    }
    Ok(if failed == 0 { Exit::Ok } else { Exit::Partial })
}

fn explained(failure: Failure) -> Failure {
    if failure.kind == "left_out" {
        failure.hint("--devices makes it (as root), --exclude leaves it out silently")
    } else {
        failure
    }
}

/// A failure about the image names it; one about a directory of the system has its own name.
fn named(failure: Failure, image: &str) -> Failure {
    match &failure.subject {
        Some(_) => failure,
        None => failure.of(image),
    }
}

fn to_json(name: &str, report: &ExtractReport, failures: &[Failure]) -> Value {
    let failures: Vec<_> = failures.iter().map(crate::json::failure_fields).collect();
    json!({
        "image": name,
        "directories": report.directories,
        "files": report.files,
        "bytes": report.bytes,
        "hard_links": report.hard_links,
        "symlinks": report.symlinks,
        "specials": report.specials,
        "failures": failures,
    })
}
