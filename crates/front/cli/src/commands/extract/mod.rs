//! `forerun extract`: extracts files, never outside the target directory, or writes them to
//! standard output.

mod report;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum, ValueHint};
use forerun::Image;
use forerun_export::{ExportError, ExtractOptions, Owners, Selection, extract, write_contents};

use super::owners::OwnerMapArgs;
use super::salvage::ReportArgs;
use super::select::SelectArgs;
use crate::args::ImageArgs;
use crate::confine::{capabilities, check_emulator};
use crate::context::{Context, image_name};
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::interrupt::{self, Graceful};
use crate::output;
use crate::place::OutputDir;
use crate::progress::Progress;

/// Copy files of an image to disk
///
/// Paths keep their directories: /etc/passwd becomes DIR/etc/passwd. Nothing is written outside of
/// DIR, whatever the image says, and nothing is overwritten without --force. If some entries cannot
/// be extracted, they are listed, the others are extracted, and the exit status is 6.
///
/// If an extraction is interrupted or the disk is full, only whole files stay, and a message says
/// how many are missing. The same command with --skip-existing continues the extraction.
///
/// With --salvage, damaged files are written with zeros in place of the lost bytes. Each of them is
/// listed, and the exit status is 6. --report FILE records the lost ranges.
///
/// For root, files get their owners from the image. For other users, files belong to the caller,
/// and a note says so.
#[derive(Args, Debug)]
#[command(
    after_help = "\
Examples:
  forerun extract -C out firmware.img
  forerun extract -C out --include '*.conf' firmware.img /etc
  forerun extract --to-stdout --include '*.log' system.sqsh | grep error",
    after_long_help = "\
Examples:
  forerun extract -C out firmware.img
  forerun extract -C out firmware.img /etc /usr/bin
  forerun extract -C out --include '*.conf' --exclude '/etc/ssl' firmware.img
  forerun extract -C rootfs --keep all system.sqsh          everything, as root
  forerun extract --salvage -C out cut.sqsh                 what is left
  forerun extract --to-stdout --include '*.log' system.sqsh | grep error"
)]
pub struct ExtractArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// Extract into DIR, creating it if needed
    #[arg(short = 'C', long, value_name = "DIR", default_value = ".", value_hint = ValueHint::DirPath)]
    pub directory: PathBuf,
    /// Write file contents to standard output
    ///
    /// All files are written one after the other.
    #[arg(
        short = 'O',
        long,
        conflicts_with_all = ["directory", "force", "keep", "owner",
            "no_same_permissions", "no_xattrs", "uid_map",
            "gid_map", "check_case_collisions", "skip_existing", "sync", "report"]
    )]
    pub to_stdout: bool,
    /// Replace existing files, including the file of --report
    #[arg(long)]
    pub force: bool,
    /// Resume an extraction: skip files that exist
    ///
    /// A file is skipped if it has the size and time of the file in the image. An incomplete file is replaced.
    #[arg(long)]
    pub skip_existing: bool,
    /// Flush to disk before exiting
    ///
    /// This takes less time than sync(1) afterwards, and reports errors of the disk.
    #[arg(long)]
    pub sync: bool,
    /// List names that differ only in case
    ///
    /// If DIR ignores case, they are listed even without this option, and only the first is
    /// extracted.
    #[arg(long)]
    pub check_case_collisions: bool,
    /// Owner of the files
    ///
    /// The default is "image" for root, and "caller" for other users.
    #[arg(
        help_heading = "Owners, times and attributes",
        long,
        value_name = "WHOSE"
    )]
    pub owner: Option<Owner>,
    /// Also keep what is left out by default, separated by commas
    #[arg(
        help_heading = "Owners, times and attributes",
        long,
        value_name = "WHAT",
        value_delimiter = ','
    )]
    pub keep: Vec<Kept>,
    /// Apply the umask to permissions, as to any new file
    #[arg(
        help_heading = "Owners, times and attributes",
        long,
        hide_short_help = true
    )]
    pub no_same_permissions: bool,
    /// Leave out extended attributes
    #[arg(help_heading = "Owners, times and attributes", long)]
    pub no_xattrs: bool,
    #[command(flatten)]
    pub owners: OwnerMapArgs,
    #[command(flatten)]
    pub select: SelectArgs,
    #[command(flatten)]
    pub salvage: ReportArgs,
}

/// The owner of the files that are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Owner {
    /// The owners in the image; files whose owner cannot be set are listed
    Image,
    /// The user who extracts
    Caller,
}

/// A property or kind of file that is not kept unless that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kept {
    /// Device nodes (root only)
    Devices,
    /// Set-user-id, set-group-id and sticky bits
    SpecialBits,
    /// Extended attributes security.* (file capabilities, labels) and trusted.* (root only)
    PrivilegedXattrs,
    /// All of these
    All,
}

impl ExtractArgs {
    fn keeps(&self, what: Kept) -> bool {
        self.keep.contains(&what) || self.keep.contains(&Kept::All)
    }
}

pub fn run(context: &Context, args: &ExtractArgs) -> Result {
    check_emulator()?;
    let mut selection = args.select.selection()?;
    let mut options = options(args)?;
    let name = image_name(&args.image);
    if args.to_stdout {
        let image = context.open(&args.image)?;
        expand(&mut selection, &image, &name)?;
        return to_stdout(context, &image, &name, &selection);
    }
    let prepared = context.prepare(&args.image)?;
    let place = make_place(&args.directory).map_err(|error| report::named(error.into(), &name))?;
    options.is_new = place.is_new();
    let target = match args.salvage.target(&args.image, args.force) {
        Ok(target) => target,
        Err(failure) => {
            place.take_back();
            return Err(failure);
        }
    };
    let sandbox = place.sandbox(prepared.sandbox());
    let sandbox = target
        .iter()
        .fold(sandbox, |sandbox, target| target.sandbox(sandbox));
    interrupt::defer();
    let graceful = Graceful::new(Arc::clone(&options.stop));
    context.confine(&sandbox.keep(capabilities(&options)));
    let extracted = context.open_prepared(prepared, None).and_then(|image| {
        expand(&mut selection, &image, &name)?;
        let progress = Progress::new(context, "extracting", 0);
        let dir = &args.directory;
        let report = extract(image.reader(), &selection, dir, &options, &progress);
        let report = report.map_err(|error| report::named(error.into(), &name))?;
        Ok((image, report))
    });
    let ended = match extracted {
        Ok((image, report)) => report::finish(context, args, (&image, target), report),
        Err(failure) => {
            place.take_back();
            Err(failure)
        }
    };
    drop(graceful);
    ended
}

fn expand(selection: &mut Selection, image: &Image, name: &str) -> Result<()> {
    let expanded = selection.expand(image.reader());
    expanded.map_err(|error| report::named(error.into(), name))
}

fn make_place(dir: &Path) -> std::result::Result<OutputDir, ExportError> {
    OutputDir::make(dir).map_err(|source| ExportError::Target {
        path: dir.into(),
        source,
    })
}

fn options(args: &ExtractArgs) -> Result<ExtractOptions> {
    let (uids, gids) = args.owners.maps()?;
    Ok(ExtractOptions {
        force: args.force,
        skip_existing: args.skip_existing,
        devices: args.keeps(Kept::Devices),
        special_bits: args.keeps(Kept::SpecialBits),
        owners: match args.owner {
            Some(Owner::Caller) => Owners::Caller,
            Some(Owner::Image) => Owners::Image,
            None => Owners::AsRoot,
        },
        umask: args.no_same_permissions,
        uids,
        gids,
        no_xattrs: args.no_xattrs,
        privileged_xattrs: args.keeps(Kept::PrivilegedXattrs) && !args.no_xattrs,
        case_collisions: args.check_case_collisions,
        threads: args.image.source.threads.map_or(0, usize::from),
        sync: args.sync,
        salvage: args.image.source.rescue,
        ..ExtractOptions::default()
    })
}

fn to_stdout(context: &Context, image: &Image, name: &str, selection: &Selection) -> Result {
    let mut out = output::stdout_file()?;
    let progress = Progress::new(context, "writing", 0);
    let written = write_contents(image.reader(), selection, &mut out, &progress);
    drop(progress);
    let report = written.map_err(|error| match error {
        ExportError::Output(error) => output::failed(&error),
        error => report::named(error.into(), name),
    })?;
    let failures = report.failures.into_iter();
    let failures: Vec<_> = failures
        .map(|error| Failure::from(error).of(name))
        .collect();
    let exit = if failures.is_empty() {
        Exit::Ok
    } else {
        Exit::Partial
    };
    context.report_all(failures);
    let left_out = selection.left_out(image.reader());
    Ok(exit.and(context.left_out(name, left_out)))
}
