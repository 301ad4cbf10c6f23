//! `forerun tar`: writes an image as a tar archive.

use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use forerun_export::{ExportError, TarWriteOptions, write_tar};

use super::owners::OwnerMapArgs;
use super::salvage::{self, ReportArgs};
use super::select::SelectArgs;
use crate::args::ImageArgs;
use crate::context::{Context, image_name};
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::interrupt;
use crate::progress::Progress;
use crate::target::{Target, is_same_file};

/// Write the files of an image as a tar archive
///
/// FILE appears when it is complete. Times later than SOURCE_DATE_EPOCH are set to it. Holes are stored
/// in GNU's sparse format.
///
/// With --salvage, damaged files are written with zeros in place of the lost bytes. The PAX record
/// FORERUN.lost of such a file lists the lost ranges, and the exit status is 6. Each file is read twice.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  forerun tar firmware.img | tar -tv
  forerun tar -o etc.tar --include '/etc' firmware.img
  forerun tar --salvage --report report.json -o what-is-left.tar cut.sqsh
  forerun tar --uid-map 0:100000:65536 root.sqsh > shifted.tar")]
pub struct TarArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// Archive to write [default: standard output]
    #[arg(short, long, value_name = "FILE", default_value = "-", hide_default_value = true, value_hint = ValueHint::FilePath)]
    pub output: PathBuf,
    /// Replace FILE and the file of --report if they exist
    #[arg(long)]
    pub force: bool,
    /// Write holes as zeros, for programs that cannot read sparse files
    #[arg(long)]
    pub no_sparse: bool,
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

pub fn run(context: &Context, args: &TarArgs) -> Result {
    let mut selection = args.select.selection()?;
    let (uids, gids) = args.owners.maps()?;
    let output = Path::new(&args.output);
    let mut images = args.image.images().iter();
    if images.any(|image| is_same_file(image, output)) {
        let failure = Failure::usage("the image and the archive are the same file");
        return Err(failure.of(args.output.display()));
    }
    interrupt::defer();
    let prepared = context.prepare(&args.image)?;
    let mut target = Target::create(&args.output, args.force, "an archive")?;
    let told = args.salvage.target(&args.image, args.force)?;
    let sandbox = target.sandbox(prepared.sandbox());
    context.confine(
        &told
            .iter()
            .fold(sandbox, |sandbox, told| told.sandbox(sandbox)),
    );
    let image = context.open_prepared(prepared, None)?;
    let name = image_name(&args.image);
    let options = TarWriteOptions {
        latest: crate::values::source_date_epoch()?,
        uids,
        gids,
        no_sparse: args.no_sparse,
        no_xattrs: args.no_xattrs,
        salvage: args.image.source.rescue,
    };
    let expanded = selection.expand(image.reader());
    expanded.map_err(|error| Failure::from(error).of(&name))?;
    let progress = Progress::new(context, "archiving", 0);
    let written = write_tar(
        image.reader(),
        &selection,
        target.file(),
        &options,
        &progress,
    );
    drop(progress);
    let report = written.map_err(|error| match error {
        ExportError::Output(error) => target.failed(&error),
        error => Failure::from(error).of(&name),
    })?;
    target.commit()?;
    let failures: Vec<_> = report
        .failures
        .into_iter()
        .map(|error| Failure::from(error).of(&name))
        .collect();
    let exit = if failures.is_empty() {
        Exit::Ok
    } else {
        Exit::Partial
    };
    let exit = exit.and(context.left_out(&name, report.left_out));
    let listed: Vec<_> = failures.iter().map(crate::json::failure_fields).collect();
    context.report_all(failures);
    if args.image.source.rescue {
        let outcomes = (report.outcomes.as_slice(), listed.as_slice());
        return Ok(exit.and(salvage::finish(
            context,
            &args.image,
            &image,
            outcomes,
            told,
        )?));
    }
    Ok(exit)
}
