//! `forerun cat`: writes files to standard output.
//!
//! A damaged file is written up to the damage, followed by an error with the position, because a
//! user who rescues data wants every byte.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::Path;

use clap::Args;
use forerun::Reader;
use forerun::vfs::{Error, FileType, FollowLast, NodeId, resolve};
use forerun_export::{ExportError, Remains, SalvagedFile, expand, write_readable};

use super::salvage::{self, ReportArgs};
use crate::args::{ImageArgs, image_path, is_stdin};
use crate::context::{Context, image_name};
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::output;

/// Bytes of one read and write.
const CHUNK: usize = 1 << 20;
/// Smallest read, to find where damage starts.
const FINEST: usize = 512;

/// Write files of an image to standard output
///
/// Follows symbolic links inside the image. Writes a damaged file up to the damage. With --salvage,
/// writes zeros in place of lost bytes, leaves out files of which nothing can be read, and exits
/// with status 6.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  forerun cat firmware.img /etc/passwd
  forerun cat firmware.img '/etc/*.conf'
  forerun cat firmware.img /boot/config.gz | zcat
  forerun cat --salvage --report lost.json cut.sqsh /data.db > data.db")]
pub struct CatArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// Paths in the image, or patterns such as '/etc/*.conf'
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<OsString>,
    /// Replace the file of --report if it exists
    #[arg(help_heading = "Image", long, requires = "report")]
    pub force: bool,
    #[command(flatten)]
    pub salvage: ReportArgs,
}

pub fn run(context: &Context, args: &CatArgs) -> Result {
    let is_stdout = |path: &Path| is_stdin(path);
    if args.salvage.report.as_deref().is_some_and(is_stdout) {
        let failure = Failure::usage("the files and the report cannot both go to standard output");
        return Err(failure.hint("name a file: --report FILE"));
    }
    let prepared = context.prepare(&args.image)?;
    let target = args.salvage.target(&args.image, args.force)?;
    let sandbox = prepared.sandbox();
    context.confine(&match &target {
        Some(target) => target.sandbox(sandbox),
        None => sandbox,
    });
    let image = context.open_prepared(prepared, None)?;
    let name = image_name(&args.image);
    let mut cat = Cat {
        reader: image.reader(),
        out: output::stdout_file()?,
        is_salvage: args.image.source.rescue,
        outcomes: Vec::new(),
    };
    let (mut exit, mut failures) = (Exit::Ok, Vec::new());
    let mut failed = |failure: Failure| {
        failures.push(crate::json::failure_fields(&failure));
        exit = exit.and(context.report(&failure));
    };
    for path in args.paths.iter().map(image_path) {
        let paths = match expand(image.reader(), path) {
            Ok(paths) => paths,
            Err(error) => {
                failed(Failure::from(error).of(&name).at(path));
                continue;
            }
        };
        for path in &paths {
            if let Err(failure) = cat.file(path) {
                if failure.subject.is_some() {
                    return Err(failure);
                }
                failed(failure.of(&name).at(path));
            }
        }
    }
    if cat.is_salvage {
        let told = (cat.outcomes.as_slice(), failures.as_slice());
        let salvaged = salvage::finish(context, &args.image, &image, told, target)?;
        return Ok(exit.and(salvaged));
    }
    Ok(exit)
}

struct Cat<'c> {
    reader: &'c Reader,
    out: File,
    is_salvage: bool,
    outcomes: Vec<SalvagedFile>,
}

impl Cat<'_> {
    /// Writes a file. Errors of the output name it as their subject.
    fn file(&mut self, path: &[u8]) -> Result<()> {
        let fs = self.reader.fs();
        let node = resolve(fs, path, FollowLast::Yes, self.reader.limits())?;
        let metadata = fs.metadata(node)?;
        match metadata.kind {
            FileType::Directory => Err(Error::IsADirectory.into()),
            FileType::Regular if self.is_salvage => self.salvage(path, node, metadata.size),
            _ => copy(self.reader, node, &mut self.out),
        }
    }

    fn salvage(&mut self, path: &[u8], node: NodeId, size: u64) -> Result<()> {
        let written = write_readable(self.reader, (path, node), size, &mut self.out);
        let (outcome, error) = written.map_err(|error| match error {
            ExportError::Output(error) => output::failed(&error),
            error => Failure::from(error),
        })?;
        let is_lost = outcome.state() == Remains::Lost;
        self.outcomes.push(outcome);
        match error.filter(|_| is_lost) {
            Some(error) => Err(Failure {
                exit: Exit::Partial,
                ..error.into()
            }),
            None => Ok(()),
        }
    }
}

fn copy(reader: &Reader, node: NodeId, out: &mut File) -> Result<()> {
    let mut offset = 0;
    let mut chunk = CHUNK;
    let mut sum = reader.fs().file_sum(node)?;
    loop {
        let data = match reader.read(node, offset, chunk) {
            Ok(data) => data,
            // Halves the read until everything readable before the damage has been written.
            Err(_) if chunk > FINEST => {
                chunk /= 2;
                continue;
            }
            Err(error) => {
                let failure = Failure::from(error);
                let message = format!("{} (byte {offset} of the file)", failure.message);
                return Err(Failure { message, ..failure });
            }
        };
        if data.is_empty() {
            return Ok(sum.map_or(Ok(()), |sum| sum.finish())?);
        }
        if let Some(sum) = &mut sum {
            sum.take(&data);
        }
        out.write_all(&data)
            .map_err(|error| output::failed(&error))?;
        offset += crate::size::count_of(data.len());
    }
}
