//! `forerun info`: facts about an image as a whole. Cheap, because it reads only what opening the
//! image reads.

use clap::Args;
use forerun::Image;
use serde_json::{Map, Value};

use crate::args::ImageArgs;
use crate::context::{Context, image_name};
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::output::Output;
use crate::{json, size};

/// Show format, label and sizes of an image
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  forerun info firmware.img
  forerun info --json firmware.img | jq .format")]
pub struct InfoArgs {
    #[command(flatten)]
    pub image: ImageArgs,
}

pub fn run(context: &Context, args: &InfoArgs) -> Result {
    let image = context.open(&args.image)?;
    let name = image_name(&args.image);
    let digests = digests(args, &name, &image)?;
    let mut out = Output::stdout()?;
    if context.global.json {
        let mut facts = to_json(&name, &image, &digests);
        if context.global.verbose > 0 {
            facts.insert("sandbox".into(), context.confinement.json());
        }
        out.json(&facts.into())?;
    } else {
        print(context, &mut out, args, &name, &image, digests)?;
    }
    out.finish()?;
    Ok(Exit::Ok)
}

/// Computes the digests of an image that has some. An image at a server would be fetched for them.
fn digests(args: &InfoArgs, name: &str, image: &Image) -> Result<Vec<String>> {
    if args
        .image
        .images()
        .iter()
        .any(|image| crate::remote::is_remote(image))
    {
        return Ok(Vec::new());
    }
    image
        .digests()
        .map_err(|error| Failure::from(error).of(name))
}

/// Formats seconds since the epoch as RFC 3339 in UTC. Returns `None` beyond the year 9999.
fn date(seconds: i64) -> Option<String> {
    let time = jiff::Timestamp::from_second(seconds).ok()?;
    Some(time.to_string())
}

fn to_json(name: &str, image: &Image, digests: &[String]) -> Map<String, Value> {
    let volume = image.reader().fs().volume();
    let mut object = Map::new();
    object.insert("image".into(), name.into());
    object.insert("format".into(), volume.format.into());
    let container = image
        .container()
        .map(forerun::unstable::disk::Container::name);
    object.insert("container".into(), container.into());
    object.insert("offset".into(), image.offset().into());
    json::put_bytes(&mut object, "label", &volume.label);
    object.insert("image_bytes".into(), volume.image_len.into());
    object.insert("source_bytes".into(), image.source_len().into());
    object.insert("block_size".into(), volume.block_size.into());
    object.insert("inodes".into(), volume.inodes.into());
    object.insert("name_max".into(), volume.name_max.into());
    object.insert("has_xattrs".into(), volume.has_xattrs.into());
    object.insert("has_owners".into(), volume.has_owners.into());
    object.insert("has_times".into(), volume.has_times.into());
    object.insert("created".into(), volume.created.and_then(date).into());
    for (key, number) in [("digest", 0), ("digest_sha512", 1)] {
        object.insert(key.into(), digests.get(number).cloned().into());
    }
    let created = volume
        .created
        .map(|seconds| ("created", seconds.to_string()));
    let details: Map<_, _> = volume
        .details
        .iter()
        .cloned()
        .chain(created)
        .map(|(key, value)| (key.to_string(), value.into()))
        .collect();
    object.insert("details".into(), details.into());
    object
}

fn print(
    context: &Context,
    out: &mut Output,
    args: &InfoArgs,
    name: &str,
    image: &Image,
    digests: Vec<String>,
) -> Result<()> {
    let volume = image.reader().fs().volume();
    let source_len = image.source_len();
    let mut lines = vec![("image", name.to_string())];
    if let Some(container) = image.container() {
        lines.push(("container", container.to_string()));
    }
    if image.offset() > 0 {
        let offset = image.offset();
        lines.push(("offset", format!("{offset} ({offset:#x})")));
    }
    lines.push(("format", volume.format.to_string()));
    if !volume.label.is_empty() {
        lines.push(("label", crate::escape::escape(&volume.label)));
    }
    lines.push(("image size", size::exact(volume.image_len)));
    if source_len > volume.image_len {
        let rest = source_len - volume.image_len;
        let text = format!(
            "{}, {} of it after the image",
            size::exact(source_len),
            size::exact(rest)
        );
        let is_whole = image.offset() == 0 && args.image.source.size.is_none();
        lines.push((if is_whole { "file size" } else { "room" }, text));
    }
    lines.push(("block size", size::exact(volume.block_size.into())));
    if let Some(inodes) = volume.inodes {
        lines.push(("inodes", inodes.to_string()));
    }
    let mut keeps = vec![(volume.has_xattrs, "extended attributes")];
    if volume.has_owners == volume.has_times {
        keeps.insert(0, (volume.has_owners, "owners, modes and times"));
    } else {
        keeps.insert(0, (volume.has_owners, "owners and modes"));
        keeps.insert(1, (volume.has_times, "times"));
    }
    for (kept, what) in keeps {
        lines.push((if kept { "keeps" } else { "lacks" }, what.to_string()));
    }
    lines.push(("longest name", size::exact(volume.name_max.into())));
    if let Some(seconds) = volume.created {
        lines.push((
            "created",
            date(seconds).unwrap_or_else(|| seconds.to_string()),
        ));
    }
    lines.extend(["digest", "SHA-512 digest"].into_iter().zip(digests));
    for (key, value) in &volume.details {
        lines.push((key, crate::escape::printable(value)));
    }
    if context.global.verbose > 0
        && let Some(sandbox) = context.confinement.text()
    {
        lines.push(("sandbox", sandbox));
    }
    let width = lines.iter().map(|(key, _)| key.len()).max().unwrap_or(0);
    for (key, value) in lines {
        out.line(format!("{key:width$}  {value}"))?;
    }
    Ok(())
}
