//! `forerun pull`: fetches a whole remote image into a file.

use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use forerun::unstable::remote::RemoteError;
use serde_json::json;

use crate::args::ServerArgs;
use crate::context::Context;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::output::Output;
use crate::progress::Progress;
use crate::{names, remote, size};

/// Download an image from a registry, object store or web server
///
/// A container image is downloaded to a directory, an OCI image layout: open it as oci-layout:DIR. Layers
/// that exist there are not downloaded again, and other images in the layout stay.
///
/// OUTPUT appears when the file is complete and, if the image has a digest, verified. An
/// interrupted download is kept in OUTPUT.part, and the next one continues from there.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  forerun pull oci://registry.example/app:1.0 app.erofs
  forerun pull oci://docker.io/python:3.13 images   open as oci-layout:images
  forerun pull https://example.org/data.squashfs data.squashfs")]
pub struct PullArgs {
    /// Image: an oci://, s3:// or https:// name
    #[arg(value_name = "NAME")]
    pub name: PathBuf,
    /// File to write; for a container image, a directory
    #[arg(value_hint = ValueHint::FilePath)]
    pub output: PathBuf,
    /// Replace OUTPUT if it exists
    #[arg(short, long)]
    pub force: bool,
    /// Refuse images that come without a digest
    #[arg(help_heading = "Images at servers", long)]
    pub require_verified: bool,
    #[command(flatten)]
    pub server: ServerArgs,
}

pub fn run(context: &Context, args: &PullArgs) -> Result {
    let reference = remote::reference(&args.name)?;
    let reference = reference.ok_or_else(|| names::not_at_server(&args.name))?;
    let there = args.output.symlink_metadata();
    if !args.force && there.is_ok_and(|there| !there.is_dir()) {
        let failure = Failure::new(Exit::Output, "output", "exists already");
        return Err(failure
            .of(args.output.display())
            .hint("--force replaces it"));
    }
    let mut options = args.server.options();
    options.require_verified = args.require_verified;
    let (mut bar, mut before) = (None, 0);
    let pulled = forerun::unstable::remote::pull_to(
        &reference,
        &args.output,
        &options,
        args.force,
        &mut |progress| {
            let bar = bar.get_or_insert_with(|| Progress::new(context, "pulling", progress.total));
            bar.add(progress.done.saturating_sub(before));
            before = progress.done;
        },
    );
    drop(bar);
    let pulled = pulled.map_err(|error| failure(&error, args))?;
    let mut out = Output::stdout()?;
    if context.global.json {
        out.json(&json!({
            "bytes": pulled.len,
            "verified": pulled.verified,
            "container": pulled.is_container,
        }))?;
    }
    out.finish()?;
    let verified = if pulled.verified {
        "verified"
    } else {
        "not verified: the image has no digest"
    };
    context.note(&format!("{}, {verified}", size::human(pulled.len)));
    Ok(Exit::Ok)
}

/// Returns the failure, with a hint if a partial image was kept.
fn failure(error: &RemoteError, args: &PullArgs) -> Failure {
    let failure = remote::failure(error);
    let mut part = args.output.as_os_str().to_os_string();
    part.push(".part");
    let part = Path::new(&part);
    match failure.hint {
        None if part.is_dir() => failure.hint(format!(
            "the fetched part is kept in {}; run the same command to continue",
            part.display()
        )),
        _ => failure,
    }
}
