//! The image on standard input or in another pipe.
//!
//! Images need random access, which a redirected file or device has. A pipe is first copied to an
//! unnamed temporary file, which vanishes with the process.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use forerun::build::{spool_dir, spool_file};
use forerun_io::FileSource;

use crate::args::is_stdin;
use crate::context::Context;
use crate::error::{Failure, Result, reason};
use crate::exit::Exit;
use crate::size;

pub fn open(context: &Context) -> Result<FileSource> {
    let stdin = io::stdin();
    let failed = |error: io::Error| Failure::source(&error).of("standard input");
    if stdin.is_terminal() {
        let hint = "redirect a file: forerun ... - < IMAGE";
        return Err(Failure::usage("standard input is a terminal, not an image").hint(hint));
    }
    let inherited = File::from(stdin.as_fd().try_clone_to_owned().map_err(failed)?);
    let kind = inherited.metadata().map_err(failed)?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return copied(context, inherited, "standard input");
    }
    // Opened again, because a lock on the inherited description would stay with the caller.
    let file = File::open("/proc/self/fd/0").unwrap_or(inherited);
    FileSource::from_file(file).map_err(failed)
}

/// Copies a pipe, which messages call `name`.
pub fn copied(context: &Context, mut pipe: File, name: &str) -> Result<FileSource> {
    let failed = |error: io::Error| {
        let message = format!(
            "{name} is not seekable, and copying it to {} failed: {}",
            spool_dir().display(),
            reason(&error)
        );
        let hint = "save it to a file first, or set TMPDIR to a directory with enough space";
        Failure::new(Exit::Source, "io", message).hint(hint)
    };
    let mut copy = spool_file().map_err(failed)?;
    let len = io::copy(&mut pipe, &mut copy).map_err(failed)?;
    context.note(&format!(
        "{name} is not seekable: copied {} to a temporary file",
        size::human(len)
    ));
    FileSource::from_file(copy).map_err(failed)
}

pub fn input_name(input: &Path) -> String {
    if is_stdin(input) {
        "standard input".to_string()
    } else {
        input.display().to_string()
    }
}
