//! `forerun diff`: the differences between two images, or between an image and a directory.

mod find;
mod show;

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum, ValueHint};
use forerun::Image;
use forerun_export::{DiffOptions, DiffReport, Difference, ExportError, Patterns, Side, diff};
use forerun_sandbox::Sandbox;

use crate::args::{ImageArgs, LimitArgs, SourceArgs};
use crate::confine::TREES;
use crate::context::{Context, image_name};
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::output::Output;
use crate::progress::Progress;
use crate::source;

/// Compare two images, or an image and a directory
///
/// Compares names, types, permissions, owners, times, links, devices, extended attributes and
/// contents. Prints a line for each difference: added (only in B), removed (only in A), or changed
/// (with the change). Differences that may give somebody more rights come first: set-user-ID files,
/// permissions, owners, capabilities, devices. Ignores properties that one of the two formats cannot
/// store, such as the owners and times of romfs.
///
/// In a file that holds images, such as firmware, compares the largest image. FILE@OFFSET names
/// another one, FILE@pN a partition.
///
/// Exit status: 0 if nothing differs, 1 if something differs, 2 or more if not everything could be
/// compared.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  forerun diff old.sqsh new.sqsh
  forerun diff router-1.0.bin router-1.1.bin
  forerun diff router.bin@0x200000 disk.img@p2
  forerun diff --ignore mtime,owner rootfs/ rootfs.sqsh
  forerun diff --brief --exclude '*.pyc' a.sqsh b.img")]
pub struct DiffArgs {
    /// Image, FILE@OFFSET, FILE@pN or directory
    #[arg(value_name = "A", value_hint = ValueHint::AnyPath)]
    pub left: PathBuf,
    /// Image or directory to compare with A
    #[arg(value_name = "B", value_hint = ValueHint::AnyPath)]
    pub right: PathBuf,
    /// Do not compare these properties, separated by commas
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    pub ignore: Vec<Ignored>,
    /// List the paths that differ, without details
    #[arg(long)]
    pub brief: bool,
    /// Compare only paths that match GLOB; repeat for more
    ///
    /// A directory is compared together with everything below it. A GLOB with a slash must match
    /// the whole path, and a GLOB without a slash the name.
    #[arg(help_heading = "Selection", long, value_name = "GLOB")]
    pub include: Vec<String>,
    /// Leave out paths that match GLOB; repeat for more
    ///
    /// A directory is left out together with everything below it.
    #[arg(help_heading = "Selection", long, value_name = "GLOB")]
    pub exclude: Vec<String>,
    #[command(flatten)]
    pub source: SourceArgs,
    #[command(flatten)]
    pub limits: LimitArgs,
}

/// Differences that a comparison can leave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Ignored {
    /// Modification times
    Mtime,
    /// Owners and groups
    Owner,
    /// Permissions
    Mode,
    /// Extended attributes
    Xattrs,
    /// Hard links
    Links,
}

/// An opened side of the comparison.
enum Opened {
    Image(Box<Image>, String),
    Directory(PathBuf),
}

pub fn run(context: &Context, args: &DiffArgs) -> Result {
    let options = options(args)?;
    let left = prepare(context, args, &args.left)?;
    let right = prepare(context, args, &args.right)?;
    let sandbox = right.sandbox(left.sandbox(Sandbox::new()));
    context.confine(&sandbox);
    let (left, right) = (left.open(context)?, right.open(context)?);
    let progress = Progress::new(context, "comparing", 0);
    let mut found = Vec::new();
    let keep = &mut |difference| found.push(difference);
    let report = diff(left.side(), right.side(), &options, &progress, keep);
    drop(progress);
    let report = report.map_err(|error| unreadable(error.into()))?;
    finish(context, args, &(left, right), report, &found)
}

fn options(args: &DiffArgs) -> Result<DiffOptions> {
    let ignores = |what| args.ignore.contains(&what);
    Ok(DiffOptions {
        ignore_mtime: ignores(Ignored::Mtime),
        ignore_owner: ignores(Ignored::Owner),
        ignore_mode: ignores(Ignored::Mode),
        ignore_xattrs: ignores(Ignored::Xattrs),
        ignore_links: ignores(Ignored::Links),
        include: Patterns::new(&args.include)?,
        exclude: Patterns::new(&args.exclude)?,
        threads: args.source.threads.map_or(0, usize::from),
    })
}

/// A side of the comparison whose file is open but not parsed.
enum Prepared {
    Image(
        Box<source::PreparedImage>,
        Option<Box<source::PreparedImage>>,
        String,
    ),
    Directory(PathBuf),
}

fn prepare(context: &Context, args: &DiffArgs, path: &Path) -> Result<Prepared> {
    if path.is_dir() {
        return Ok(Prepared::Directory(path.into()));
    }
    let mut image = ImageArgs {
        image: path.into(),
        layers: Vec::new(),
        source: args.source.clone(),
        limits: args.limits.clone(),
    };
    find::place(&mut image)?;
    let prepared = context.prepare(&image).map_err(unreadable)?;
    // A second descriptor, for the search in a file that turns out to be no image.
    let spare = if find::may_be_searched(&image) {
        Some(Box::new(context.prepare(&image).map_err(unreadable)?))
    } else {
        None
    };
    Ok(Prepared::Image(
        Box::new(prepared),
        spare,
        image_name(&image),
    ))
}

impl Prepared {
    fn sandbox(&self, sandbox: Sandbox) -> Sandbox {
        match self {
            Self::Image(image, ..) => sandbox.and(image.sandbox()),
            Self::Directory(path) => sandbox.read(path).keep(TREES),
        }
    }

    fn open(self, context: &Context) -> Result<Opened> {
        Ok(match self {
            Self::Image(image, spare, name) => {
                let opened = context.open_prepared(*image, None);
                let opened = match (opened, spare) {
                    (Err(failure), Some(spare)) if failure.kind == "unknown_format" => {
                        find::largest_image(context, *spare, &name, failure)
                    }
                    (opened, _) => opened,
                };
                Opened::Image(Box::new(opened.map_err(unreadable)?), name)
            }
            Self::Directory(path) => Opened::Directory(path),
        })
    }
}

/// Replaces the exit code of an image error, which would mean a difference for this command.
fn unreadable(failure: Failure) -> Failure {
    match failure.exit {
        Exit::Image => Failure {
            exit: Exit::Partial,
            ..failure
        },
        _ => failure,
    }
}

impl Opened {
    fn side(&self) -> Side<'_> {
        match self {
            Self::Image(image, _) => Side::Image(image.reader()),
            Self::Directory(path) => Side::Directory(path),
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Image(_, name) => name.clone(),
            Self::Directory(path) => path.display().to_string(),
        }
    }
}

fn finish(
    context: &Context,
    args: &DiffArgs,
    (left, right): &(Opened, Opened),
    mut report: DiffReport,
    found: &[Difference],
) -> Result {
    let (of_left, of_right) = std::mem::take(&mut report.failures);
    let mut failures = failures(of_left, left);
    failures.extend(self::failures(of_right, right));
    let complete = failures.is_empty();
    let mut out = Output::stdout()?;
    if context.global.json {
        let names = (left.name(), right.name());
        show::json(&mut out, &names, &report, found, args.brief, &failures)?;
    } else {
        show::lines(&mut out, found, args.brief)?;
    }
    out.finish()?;
    if !context.global.json {
        context.report_all(failures);
    }
    if report.without_owners {
        context.note("owners, times and permissions were not compared: one side keeps none");
    } else if report.without_times {
        context.note("times were not compared: one side keeps none");
    }
    Ok(match (complete, report.differences) {
        (false, _) => Exit::Partial,
        (true, 0) => Exit::Ok,
        (true, _) => Exit::Image,
    })
}

fn failures(errors: Vec<ExportError>, side: &Opened) -> Vec<Failure> {
    let errors = errors.into_iter().map(Failure::from);
    errors
        .map(|failure| unreadable(failure).of(side.name()))
        .collect()
}
