//! `forerun pack`: makes an image of a directory, a tar archive or a manifest.

mod appdir;
mod appimage;
mod composefs;
mod erofs;
mod exfat;
mod format;
mod input;
mod make;
mod select;
mod shared;
mod sif;
mod squashfs;
mod suffix;
mod summary;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use forerun_sandbox::Sandbox;

use crate::args::{LimitArgs, is_stdin};
use crate::confine::{OWNERS, TREES, check_emulator};
use crate::context::Context;
use crate::error::{Failure, Result};
use crate::interrupt;
use crate::target::{Target, is_same_file};

use appimage::AppImageArgs;
use format::NewFormat;

pub use exfat::{ClusterArgs, VolumeArgs};
pub use format::{FormatArgs, unfit};
pub use input::Skipped;
pub use make::{OutputArgs, make};
pub use select::{ChangeArgs, ExcludeArgs};

/// Make an image from a directory, a tar archive or a manifest
///
/// OUTPUT appears when it is complete. The same input gives the same image, byte for byte. Times later
/// than SOURCE_DATE_EPOCH are set to it.
#[derive(Args, Debug)]
#[command(override_usage = "forerun pack [OPTIONS] <INPUT> <OUTPUT>\n       \
                            forerun pack [OPTIONS] --manifest <FILE> [INPUT] <OUTPUT>")]
#[command(
    after_help = "\
Examples:
  forerun pack --compressor zstd dir new.sqsh
  tar -c dir | forerun pack --format romfs - new.img
  forerun pack --label CARD --volume-size 32G dir new.exfat",
    after_long_help = "\
Examples:
  forerun pack --compressor zstd dir new.sqsh
  forerun pack --compressor lz4hc --cluster-size 64K dir new.erofs
  forerun pack --owner 0:0 --manifest devices.txt rootfs new.sqsh
  tar -c dir | forerun pack - new.romfs
  forerun pack --label CARD --volume-size 32G dir new.exfat
  forerun pack --appimage App.AppDir App-x86_64.AppImage
  forerun pack --definition tool.def rootfs tool.sif
  forerun pack --format romfs --align 4096 dir - | forerun ls -lR -"
)]
pub struct PackArgs {
    #[command(flatten)]
    pub format: FormatArgs,
    /// Directory or tar archive, compressed or not; - for standard input
    #[arg(value_name = "INPUT", value_hint = ValueHint::AnyPath, required_unless_present_any = ["manifest", "empty"])]
    pub input: Option<PathBuf>,
    /// Image to make; - for standard output
    #[arg(value_name = "OUTPUT", value_hint = ValueHint::FilePath, required_unless_present_any = ["output_option", "manifest", "empty"])]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub to: OutputArgs,
    /// Add the entries that FILE lists; repeat for more
    ///
    /// FILE lists directories, devices, links and files in the format of mksquashfs -pf. INPUT is
    /// then optional.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub manifest: Vec<PathBuf>,
    /// Do not descend into other filesystems
    ///
    /// Mount points below INPUT are kept as empty directories.
    #[arg(help_heading = "Selection", long)]
    pub one_file_system: bool,
    /// Store each name of a hard-linked file as a file of its own
    #[arg(help_heading = "Selection", long, hide_short_help = true)]
    pub hard_dereference: bool,
    /// Make an empty image, without INPUT
    #[arg(long, hide_short_help = true, conflicts_with = "manifest")]
    pub empty: bool,
    /// Skip files that cannot be read, and list them
    ///
    /// The exit status is 6 if there are any.
    #[arg(help_heading = "Selection", long)]
    pub skip_unreadable: bool,
    #[command(flatten)]
    pub exclude: ExcludeArgs,
    #[command(flatten)]
    pub changes: ChangeArgs,
    #[command(flatten)]
    pub appimage: AppImageArgs,
    #[command(flatten)]
    pub limits: LimitArgs,
}

pub fn run(context: &Context, args: &PackArgs) -> Result {
    check_emulator()?;
    let (input, output) = names(args)?;
    check_names(args, input, output)?;
    let app = args.appimage.prepare(args, input, output)?;
    let format = match app {
        Some(_) => NewFormat::Squashfs,
        None => args.format.chosen(output)?,
    };
    let changes = args.changes.changes(format.keeps(), app.is_some())?;
    let xattrs = changes.want_xattrs();
    let mut writer = match app {
        Some(_) => args.format.appimage_writer(xattrs)?,
        None => args.format.writer(format, xattrs, output)?,
    };
    if let Some(app) = &app {
        app.warn_of_codec(context, &writer);
    }
    let exclude = args.exclude.patterns()?;
    interrupt::defer();
    // An archive on standard input is copied first, and may take long to arrive.
    let input = input.map(|input| input::open(context, input, args.limits.clone()));
    let input = input.transpose()?;
    let blob = args.format.blob(&mut writer, args.to.force)?;
    let mut target = Target::create(output, args.to.force, "an image")?;
    // The output may lie in the input, but must not become part of itself.
    let old = output.metadata().ok();
    let mut icon = None;
    if let Some(mut app) = app {
        target.begin_program(std::mem::take(&mut app.runtime))?;
        icon = Some(app);
    } else {
        args.format.begin(format, &mut target)?;
    }
    let new = target.file().metadata().ok();
    let ids = old.into_iter().chain(new);
    let reading = input::Reading {
        exclude,
        xattrs,
        one_file_system: args.one_file_system,
        skip: ids
            .map(|metadata| (metadata.dev(), metadata.ino()))
            .collect(),
        limits: args.limits.limits(),
        skip_unreadable: args.skip_unreadable,
        manifests: &args.manifest,
    };
    let targets = blob.iter().chain([&target]);
    let sandbox = sandbox(args, input.as_ref());
    context.confine(&targets.fold(sandbox, |sandbox, target| target.sandbox(sandbox)));
    let (mut tree, mut skipped) = input::read(context, input, reading)?;
    if let Some(app) = icon {
        app.add_icon(&mut tree)?;
    }
    changes.apply(&mut tree);
    if args.hard_dereference {
        tree.separate_links();
    }
    let how = ("packing", args.skip_unreadable.then_some(&mut skipped));
    let made = make(context, &writer, &mut tree, (target, blob), output, how);
    let name = args.input.as_deref().unwrap_or(output).display();
    let exit = skipped.tell(context, &name.to_string());
    Ok(exit.and(made?))
}

/// Returns the sandbox for reading the input. Files that a manifest names may be anywhere, and a
/// link into the store fails between directories of different rules.
fn sandbox(args: &PackArgs, input: Option<&input::Input>) -> Sandbox {
    let sandbox = args.format.sandbox(Sandbox::new());
    let sandbox = match input {
        Some(input::Input::Directory(dir)) => sandbox.read(dir).keep(TREES),
        Some(input::Input::Archive(archive)) => archive.with_index(sandbox),
        None => sandbox,
    };
    if !args.manifest.is_empty() {
        return sandbox.keep(TREES).all_files("a manifest names files");
    }
    if args.format.links_objects() {
        sandbox
            .keep(OWNERS)
            .all_files("--link-objects hard-links files of the input")
    } else {
        sandbox
    }
}

/// Returns the names of input and output. With a manifest a single name is the output, and an empty
/// image has no input.
fn names(args: &PackArgs) -> Result<(Option<&Path>, &Path)> {
    let input = args.input.as_deref();
    let output = args.output.as_deref();
    let names = match output.or(args.to.output_option.as_deref()) {
        Some(output) => Ok((input, output)),
        None => match input {
            Some(only) => Ok((None, only)),
            None => Err(Failure::usage("missing OUTPUT")),
        },
    }?;
    match names {
        (Some(_), _) if args.empty => Err(Failure::usage("--empty takes no INPUT")),
        names => Ok(names),
    }
}

fn check_names(args: &PackArgs, input: Option<&Path>, output: &Path) -> Result<()> {
    let inputs = args.manifest.iter().map(PathBuf::as_path).chain(input);
    if inputs.clone().any(|input| is_same_file(input, output)) {
        let failure = Failure::usage("input and output are the same file");
        return Err(failure.of(output.display()));
    }
    if inputs.filter(|input| is_stdin(input)).count() > 1 {
        return Err(Failure::usage("standard input can be read only once"));
    }
    Ok(())
}
