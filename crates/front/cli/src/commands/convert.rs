//! `forerun convert`: makes an image of one format from an image of another.

use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args, ValueHint};
use forerun::build::{ImageOptions, from_damaged_image, from_image};

use super::pack::{ChangeArgs, ExcludeArgs, FormatArgs, OutputArgs, Skipped, make};
use crate::archive::cache_for_input;
use crate::args::{ImageArgs, LimitArgs, RemoteArgs, SourceArgs, StoreArgs, VerityMode};
use crate::at_server::at_server;
use crate::context::{Context, image_name};
use crate::error::{Failure, Result};
use crate::target::{Target, is_same_file};
use crate::{interrupt, size};

/// Convert an image to another format
///
/// Keeps everything that the new format can hold: owners, times, extended attributes, devices, hard
/// links. Needs no root, and writes nothing but the new image. Refuses a damaged image, and says
/// where the damage is. With --salvage, converts the undamaged files, lists the others, and exits
/// with status 6.
#[derive(Args, Debug)]
#[command(override_usage = "forerun convert [OPTIONS] <IMAGE> <OUTPUT>")]
#[command(group = ArgGroup::new("target").required(true).args(["output", "output_option"]))]
#[command(after_help = concat!("\
Examples:
  forerun convert old.romfs new.sqsh
  forerun convert --objects store ", at_server!("oci://registry.example/app:1.0", "oci-layout:app"), " app.cfs
  forerun convert --compressor zstd --exclude /boot gzip.img zstd.sqsh"))]
pub struct ConvertArgs {
    #[command(flatten)]
    pub format: FormatArgs,
    #[cfg_attr(
        feature = "network",
        doc = "File, device, https://, s3:// or oci:// name; - for standard input"
    )]
    #[cfg_attr(not(feature = "network"), doc = "File or device; - for standard input")]
    #[arg(value_name = "IMAGE", value_hint = ValueHint::FilePath)]
    pub image: PathBuf,
    /// Image to make; - for standard output
    #[arg(value_name = "OUTPUT", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub to: OutputArgs,
    #[command(flatten)]
    pub exclude: ExcludeArgs,
    #[command(flatten)]
    pub changes: ChangeArgs,
    #[command(flatten)]
    pub source: FromArgs,
    #[command(flatten)]
    pub limits: LimitArgs,
}

/// How the image is read: what other commands take under the same names, but for `--format`.
#[derive(Args, Debug)]
pub struct FromArgs {
    /// Open IMAGE as this format instead of detecting it
    #[arg(help_heading = "Image", long, value_name = "NAME")]
    pub from: Option<String>,
    /// File or block device with data of an EROFS IMAGE; repeat for more, in the order of its
    /// device table
    #[arg(help_heading = "Image", long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub device: Vec<PathBuf>,
    /// Object store of a composefs IMAGE
    #[arg(help_heading = "Image", long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub from_objects: Option<PathBuf>,
    /// Directory below which a composefs IMAGE names files by any path; repeat to search several in order
    #[arg(help_heading = "Image", long = "basedir", value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub base_dirs: Vec<PathBuf>,
    /// Check objects of IMAGE against their digests before use [default: off]
    #[arg(help_heading = "Image", long, value_name = "MODE")]
    pub verity: Option<VerityMode>,
    /// Byte offset of IMAGE in the file, such as 1M or 0x100000 [default: 0]
    #[arg(help_heading = "Image", long, value_name = "BYTES", value_parser = size::parse, default_value = "0", hide_default_value = true)]
    pub offset: u64,
    /// Length of IMAGE in the file [default: to the end of the file]
    #[arg(help_heading = "Image", long, value_name = "BYTES", value_parser = size::parse)]
    pub size: Option<u64>,
    /// IMAGE is partition N of the file; forerun scan shows the numbers
    #[arg(help_heading = "Image", long, value_name = "N", conflicts_with_all = ["offset", "size"])]
    pub partition: Option<u32>,
    /// Read up to this many bytes ahead of sequential readers; 0 turns readahead off [default: 8M]
    #[arg(help_heading = "Image", long, value_name = "BYTES", value_parser = size::parse)]
    pub readahead: Option<u64>,
    /// Memory for cached blocks [default: 256M, or a sixteenth of the available memory if that is
    /// less]
    #[arg(help_heading = "Image", long, value_name = "BYTES", value_parser = size::parse)]
    pub cache: Option<u64>,
    /// Read without a lock, even if another process or the kernel writes to IMAGE; the data may be
    /// inconsistent
    #[arg(help_heading = "Image", long)]
    pub no_lock: bool,
    /// Convert the undamaged files of a truncated or damaged IMAGE
    #[arg(help_heading = "Image", long)]
    pub salvage: bool,
    #[command(flatten)]
    pub remote: RemoteArgs,
}

pub fn run(context: &Context, args: &ConvertArgs) -> Result {
    let output = args.output.as_ref().or(args.to.output_option.as_ref());
    let output = output.ok_or_else(|| Failure::usage("missing OUTPUT"))?;
    if is_same_file(&args.image, output) {
        let failure = Failure::usage("input and output are the same file");
        return Err(failure.of(output.display()));
    }
    let format = args.format.chosen(output)?;
    let changes = args.changes.changes(format.keeps(), false)?;
    let mut writer = args.format.writer(format, changes.want_xattrs(), output)?;
    let exclude = args.exclude.patterns()?;
    let image_args = args.image_args();
    interrupt::defer();
    let prepared = context.prepare(&image_args)?;
    let blob = args.format.blob(&mut writer, args.to.force)?;
    let mut target = Target::create(Path::new(output), args.to.force, "an image")?;
    args.format.begin(format, &mut target)?;
    let sandbox = args.format.sandbox(prepared.sandbox());
    let targets = blob.iter().chain([&target]);
    context.confine(&targets.fold(sandbox, |sandbox, target| target.sandbox(sandbox)));
    let image = context.open_prepared(prepared, None)?;
    args.format.keep(&image, &mut writer);
    let options = ImageOptions {
        exclude,
        xattrs: changes.want_xattrs(),
        implied: None,
    };
    let name = image_name(&image_args);
    let mut skipped = Skipped::default();
    let tree = if args.source.salvage {
        from_damaged_image(image.reader(), &options, &mut |error| skipped.add(error))
    } else {
        from_image(image.reader(), &options)
    };
    let mut tree = tree.map_err(|error| Failure::from(error).of(&name))?;
    let left_out = image.reader().fs().volume().left_out;
    let exit = skipped.tell(context, &name);
    let exit = exit.and(context.left_out(&name, left_out));
    changes.apply(&mut tree);
    let made = make(
        context,
        &writer,
        &mut tree,
        (target, blob),
        output,
        ("converting", None),
    )?;
    Ok(exit.and(made))
}

impl ConvertArgs {
    fn image_args(&self) -> ImageArgs {
        let from = &self.source;
        ImageArgs {
            image: self.image.clone(),
            layers: Vec::new(),
            source: SourceArgs {
                format: from.from.clone(),
                offset: from.offset,
                size: from.size,
                partition: from.partition,
                device: from.device.clone(),
                store: StoreArgs {
                    objects: from.from_objects.clone(),
                    base_dirs: from.base_dirs.clone(),
                    verity: from.verity,
                    digest: None,
                },
                readahead: from.readahead,
                cache: Some(from.cache.unwrap_or_else(cache_for_input)),
                threads: self.format.threads,
                no_lock: from.no_lock,
                remote: from.remote.clone(),
                rescue: from.salvage,
                tz: None,
                ownership: forerun::vfs::Ownership::default(),
                legacy_blocks: false,
            },
            limits: self.limits.clone(),
        }
    }
}
