//! `forerun dump`: the structures of an image in its format's own terms, for diagnosis. The text is
//! stable for a given image, so that diff(1) can compare it.

use std::ffi::OsString;

use clap::Args;
use forerun::vfs::{FollowLast, resolve};
use forerun_export::{DumpRecord, dump};
use serde_json::{Map, Value};

use crate::advice::absolute;
use crate::args::{ImageArgs, image_path};
use crate::context::{Context, image_name};
use crate::error::{Failure, Result};
use crate::escape::{escape, printable};
use crate::exit::Exit;
use crate::json;
use crate::output::{JsonArray, Output};

/// Print the on-disk fields of an image and of its files
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  forerun dump firmware.img > fields.txt
  forerun dump firmware.img /etc/passwd
  diff <(forerun dump old.img) <(forerun dump new.img)")]
pub struct DumpArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// Print only this file or directory and everything below it
    #[arg(value_name = "PATH")]
    pub path: Option<OsString>,
}

pub fn run(context: &Context, args: &DumpArgs) -> Result {
    let image = context.open(&args.image)?;
    let name = image_name(&args.image);
    let reader = image.reader();
    let path = args.path.as_ref().map_or(&b""[..], image_path);
    let start = resolve(reader.fs(), path, FollowLast::No, reader.limits())
        .map_err(|error| Failure::from(error).of(&name).at(path))?;
    let mut out = Output::stdout()?;
    let mut array = JsonArray::default();
    let mut written = Ok(());
    let mut exit = Exit::Ok;
    let path: Vec<_> = path
        .split(|&byte| byte == b'/')
        .filter(|name| !name.is_empty())
        .collect();
    dump(reader, start, &path.join(&b'/'), &mut |record| {
        if written.is_err() {
            return;
        }
        if let Err(error) = &record.fields {
            let path = absolute(record.path.as_deref().unwrap_or_default());
            let failure = Failure::from(error.clone()).of(&name).at(&path);
            exit = exit.and(context.report(&failure));
        }
        written = if context.global.json {
            array.push(&mut out, &to_json(&record))
        } else {
            print(&mut out, &record)
        };
    });
    written?;
    if context.global.json {
        array.finish(&mut out)?;
    }
    out.finish()?;
    Ok(exit)
}

fn print(out: &mut Output, record: &DumpRecord) -> Result<()> {
    match (&record.path, record.node) {
        (None, _) => out.line("image")?,
        (Some(path), Some(node)) => out.line(format!("{} node {node}", escape(&absolute(path))))?,
        (Some(path), None) => out.line(escape(&absolute(path)))?,
    }
    match &record.fields {
        Ok(fields) => {
            for (name, value) in fields {
                out.line(format!("  {name}: {}", printable(value)))?;
            }
        }
        Err(error) => out.line(format!("  error: {}", printable(&error.to_string())))?,
    }
    Ok(())
}

fn to_json(record: &DumpRecord) -> Value {
    let mut object = Map::new();
    if let Some(path) = &record.path {
        json::put_bytes(&mut object, "path", &absolute(path));
    }
    if let Some(node) = record.node {
        object.insert("node".into(), node.0.into());
    }
    match &record.fields {
        Ok(fields) => {
            let fields: Map<_, _> = fields
                .iter()
                .map(|(name, value)| ((*name).to_string(), value.as_str().into()))
                .collect();
            object.insert("fields".into(), fields.into());
        }
        Err(error) => {
            let failure = Failure::from(error.clone());
            object.insert("error".into(), json::failure_fields(&failure));
        }
    }
    object.into()
}
