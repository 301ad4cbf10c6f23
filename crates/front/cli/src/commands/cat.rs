//! `forerun cat`: files to standard output.
//!
//! A damaged file is written up to the damage, and the error with its position follows: a user who
//! rescues data wants every byte of it.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;

use clap::Args;
use forerun::vfs::{FileType, FollowLast, resolve};
use forerun::{NodeId, Reader, vfs::Error};
use forerun_export::expand;

use crate::args::{ImageArgs, image_path};
use crate::context::{Context, image_name};
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::output;

/// Bytes of one read and write.
const CHUNK: usize = 1 << 20;
/// Finest step to find where a damaged place begins.
const FINEST: usize = 512;

/// Write files of an image to standard output, one after the other
///
/// Symbolic links are followed inside the image. A file that is damaged is written up to the damage.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  forerun cat firmware.img /etc/passwd
  forerun cat firmware.img '/etc/*.conf'
  forerun cat firmware.img /boot/config.gz | zcat")]
pub struct CatArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// Files in the image
    ///
    /// A path that is not there may be a pattern: '/etc/*.conf', quoted for the shell.
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<OsString>,
}

/// Runs it.
pub fn run(context: &Context, args: &CatArgs) -> Result {
    let image = context.open(&args.image)?;
    let name = image_name(&args.image);
    let mut out = output::stdout_file()?;
    let mut exit = Exit::Ok;
    for path in args.paths.iter().map(image_path) {
        let paths = match expand(image.reader(), path) {
            Ok(paths) => paths,
            Err(error) => {
                exit = exit.and(context.report(&Failure::from(error).of(&name).at(path)));
                continue;
            }
        };
        for path in &paths {
            if let Err(failure) = cat(image.reader(), path, &mut out) {
                if failure.subject.is_some() {
                    return Err(failure);
                }
                exit = exit.and(context.report(&failure.of(&name).at(path)));
            }
        }
    }
    Ok(exit)
}

fn cat(reader: &Reader, path: &[u8], out: &mut File) -> Result<()> {
    let fs = reader.fs();
    let node = resolve(fs, path, FollowLast::Yes, reader.limits())?;
    if fs.metadata(node)?.kind == FileType::Directory {
        return Err(Error::IsADirectory.into());
    }
    copy(reader, node, out)
}

fn copy(reader: &Reader, node: NodeId, out: &mut File) -> Result<()> {
    let mut offset = 0;
    let mut chunk = CHUNK;
    loop {
        let data = match reader.read(node, offset, chunk) {
            Ok(data) => data,
            // Halved until what is readable before the damage has been written.
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
            return Ok(());
        }
        out.write_all(&data)
            .map_err(|error| output::failed(&error))?;
        offset += u64::try_from(data.len()).unwrap_or(u64::MAX);
    }
}
