//! `forerun label`: shows or changes the name of a volume.

use std::sync::Arc;

use clap::Args;
use forerun::unstable::{VolumeMut, WriteOptions, locks};
use forerun_sandbox::Sandbox;
use serde_json::{Map, Value};

use crate::args::{ImageArgs, is_stdin};
use crate::context::{Context, image_name};
use crate::error::{Failure, Result};
use crate::escape::escape;
use crate::exit::Exit;
use crate::output::Output;
use crate::partition;
use crate::patience::patiently;
use crate::{json, layers};

/// Show the volume label of an image, or change it in place
///
/// Only the label of an exFAT volume can be changed.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  forerun label card.img
  forerun label card.img HOLIDAYS
  forerun label card.img ''")]
pub struct LabelArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// New label; an empty one removes the label
    #[arg(value_name = "LABEL")]
    pub label: Option<String>,
    /// Write even if other processes read the volume; they may read inconsistent data
    #[arg(long, requires = "label", conflicts_with = "no_lock")]
    pub break_lock: bool,
}

pub fn run(context: &Context, args: &LabelArgs) -> Result {
    match &args.label {
        None => show(context, &args.image),
        Some(label) => set(context, args, label),
    }
}

fn show(context: &Context, args: &ImageArgs) -> Result {
    let image = context.open(args)?;
    let label = &image.reader().fs().volume().label;
    let mut out = Output::stdout()?;
    if context.global.json {
        let mut object = Map::new();
        json::put_bytes(&mut object, "label", label);
        out.json(&Value::Object(object))?;
    } else if !label.is_empty() {
        out.line(escape(label))?;
    }
    out.finish()?;
    Ok(Exit::Ok)
}

fn set(context: &Context, label_args: &LabelArgs, label: &str) -> Result {
    let args = &label_args.image;
    layers::refuse(&args.layers, "a label")?;
    if is_stdin(&args.image) {
        return Err(Failure::usage("standard input cannot be changed"));
    }
    if args.source.no_lock {
        return Err(Failure::usage(
            "--no-lock is for reading: a writer needs its lock",
        ));
    }
    let args = &partition::placed(args)?;
    let failed = |error: forerun::vfs::Error| Failure::from(error).of(image_name(args));
    let mut options = args.open_options();
    options.break_lock(label_args.break_lock);
    let device = patiently(&args.image, || locks::device(&args.image, &options));
    let device = device.map_err(failed)?;
    context.confine(&Sandbox::new());
    let how = WriteOptions::default();
    let volume = VolumeMut::from_device(Arc::new(device), &options, &how).map_err(failed)?;
    let fs = volume.volume().fs();
    fs.set_label(label.as_bytes()).map_err(failed)?;
    fs.sync_all().map_err(failed)?;
    Ok(Exit::Ok)
}
