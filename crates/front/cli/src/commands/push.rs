//! `forerun push`: stores an image in a registry.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueHint};
use forerun::unstable::DiskImage;
use forerun::unstable::locks::{self, InUse};
use forerun::unstable::remote::push::PushOptions;
use forerun::vfs::Error;
use forerun::{Image, OpenOptions, ReadAt};
use forerun_io::FileSource;
use forerun_sandbox::Sandbox;
use serde_json::json;

use crate::args::{ServerArgs, locking};
use crate::confine::for_server;
use crate::context::Context;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::names;
use crate::objects::needs_store;
use crate::output::Output;
use crate::patience::patiently;
use crate::progress::Progress;
use crate::remote;
use crate::size::{self, counted};
use crate::source::cannot_open;

/// Upload an image to a registry, so that it can be mounted from there
///
/// push cuts the image into parts. For a new version, it uploads only the parts that changed. A
/// table of digests is uploaded too, so that readers can verify each chunk before they use it.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  forerun push app.erofs oci://registry.example/app:1.0
  forerun mount oci://registry.example/app:1.0 /mnt

The passwords of docker login and podman login are used.")]
pub struct PushArgs {
    /// Image to upload: a file or block device
    #[arg(value_hint = ValueHint::FilePath)]
    pub image: PathBuf,
    /// Name in the registry: oci://HOST/NAME:TAG
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Size of a part; doubled until the image has at most 4,096 parts [default: 4M]
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    pub part_size: Option<u64>,
    /// Smallest unit that readers fetch and verify, a power of two from 4K to 1M [default: 64K]
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    pub chunk_size: Option<u64>,
    /// Add an annotation to the manifest; repeat for more
    #[arg(long, value_name = "KEY=VALUE", value_parser = annotation)]
    pub annotation: Vec<(String, String)>,
    /// Upload a composefs image without its objects; each mount then needs the object store
    #[arg(long)]
    pub metadata_only: bool,
    /// Read without a lock, even if another process or the kernel writes to IMAGE; the upload may be
    /// inconsistent
    #[arg(long)]
    pub no_lock: bool,
    #[command(flatten)]
    pub server: ServerArgs,
}

fn annotation(text: &str) -> std::result::Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_string(), value.to_string())),
        _ => Err("KEY=VALUE is needed".to_string()),
    }
}

pub fn run(context: &Context, args: &PushArgs) -> Result {
    let reference = remote::reference(PathBuf::from(&args.name).as_path())?;
    let reference = reference.ok_or_else(|| {
        let hint = names::advice(Path::new(&args.name));
        Failure::usage("not a name in a registry")
            .hint(hint.unwrap_or_else(|| "give a name such as oci://HOST/NAME:TAG".to_string()))
            .of(&args.name)
    })?;
    refuse_containers(args)?;
    let of_image = |failure: Failure| failure.of(args.image.display());
    let options = OpenOptions {
        locking: locking(args.no_lock),
        ..OpenOptions::default()
    };
    let source = patiently(&args.image, || {
        let file = FileSource::open(&args.image).map_err(|error| Error::io(0, 0, error))?;
        locks::source(file, &options)
    });
    let source = source.map_err(|error| match &error {
        Error::Io { len: 0, source, .. } if InUse::of(&error).is_none() => {
            of_image(cannot_open(&args.image, source))
        }
        _ => of_image(Failure::from(error)),
    });
    let source = Arc::new(source?);
    let server = args.server.options();
    context.confine(&for_server(Path::new(&args.name), &server, Sandbox::new()));
    // An image that cannot be read is not stored.
    let image = Image::from_source(source.clone(), &options);
    let image = image.map_err(|error| of_image(Failure::from(error)))?;
    if !args.metadata_only {
        refuse_objects(&image).map_err(of_image)?;
    }
    let format = image.format();
    let mut how = PushOptions {
        format: Some(format.to_string()),
        annotations: args.annotation.iter().cloned().collect::<BTreeMap<_, _>>(),
        ..PushOptions::default()
    };
    if let Some(bytes) = args.part_size {
        how.part_len = bytes;
    }
    if let Some(bytes) = args.chunk_size {
        how.chunk_size = chunk_size(bytes)?;
    }
    let bar = Progress::new(context, "pushing", source.len());
    let mut before = 0;
    let pushed =
        forerun::unstable::remote::push_to(&*source, &reference, &server, &how, &mut |progress| {
            bar.add(progress.done.saturating_sub(before));
            before = progress.done;
        });
    drop(bar);
    let pushed = pushed.map_err(|error| remote::failure(&error))?;
    let mut out = Output::stdout()?;
    if context.global.json {
        out.json(&json!({
            "name": pushed.name.to_string(),
            "verity_root": pushed.root.to_string(),
            "bytes": pushed.len,
            "parts": pushed.parts,
            "uploaded_parts": pushed.uploaded,
            "uploaded_bytes": pushed.uploaded_bytes,
        }))?;
    } else {
        out.line(pushed.name.to_string())?;
    }
    out.finish()?;
    let parts = counted(pushed.parts, "part", "parts");
    let sent = size::human(pushed.uploaded_bytes);
    context.note(&match pushed.parts.saturating_sub(pushed.uploaded) {
        0 => format!("{parts} sent, {sent}"),
        there => format!(
            "{} of {parts} sent, {sent}; {there} already there",
            pushed.uploaded
        ),
    });
    Ok(Exit::Ok)
}

/// Refuses a container image, which other programs can copy.
fn refuse_containers(args: &PushArgs) -> Result<()> {
    let name = args.image.to_string_lossy();
    let from = if DiskImage::parse(&args.image).is_some() {
        name.replacen("oci-layout:", "oci:", 1)
    } else if let Some(rest) = name.strip_prefix("oci://") {
        format!("docker://{rest}")
    } else {
        return Ok(());
    };
    let to = args.name.replacen("oci://", "docker://", 1);
    let message = "push cannot store a container image";
    let hint = format!("skopeo copy {from} {to} copies a container image");
    Err(Failure::usage(message)
        .hint(hint)
        .of(remote::shown(&args.image)))
}

/// Refuses an image whose files are in an object store: a mount of the pushed image would not find
/// them.
fn refuse_objects(image: &Image) -> Result<()> {
    if !needs_store(image) {
        return Ok(());
    }
    let message = "its files are in an object store, which push does not upload";
    let hint = "forerun convert --format erofs --from-objects DIR IMAGE OUTPUT makes an image that has the \
                files; --metadata-only sends the image without them";
    Err(Failure::usage(message).hint(hint))
}

fn chunk_size(bytes: u64) -> Result<u32> {
    let size = u32::try_from(bytes).ok();
    let size = size.filter(|size| size.is_power_of_two() && (4096..=1 << 20).contains(size));
    size.ok_or_else(|| Failure::usage("--chunk-size must be a power of two from 4K to 1M"))
}
