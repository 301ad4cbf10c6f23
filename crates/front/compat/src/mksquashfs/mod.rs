//! `mksquashfs` and `sqfstar`: make SquashFS images of directories, files and tar archives.
//!
//! Exit codes: 0 success; 1 nothing was written. An existing output file then stays unchanged.

mod call;
mod changes;
mod compressor;
mod exclude;
mod mode;
mod options;
mod sort;
mod sources;
mod summary;
pub mod usage;
mod write;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use forerun::Writer;
use forerun::build::SquashfsOptions;

use super::complain;
use super::names::Names;
use crate::args::Global;
use crate::confine::check_emulator;
use crate::context::Context;
use crate::error::{Failure, reason};
use crate::exit::Exit;
use crate::losses::lost_properties;
use crate::options::{Manual, Parsed, told};
use crate::target::Target;
use crate::{interrupt, log, secrets};

use call::MakeCall;

pub use options::Tool;
#[cfg(test)]
pub use options::{MKSQUASHFS, SQFSTAR, TABLE};

const DONE: u8 = 0;
const FATAL: u8 = 1;
/// Maximum number of bytes of contents in memory, which is also the default without `-mem`.
const MEMORY: u64 = 64 << 20;

/// The reason why the program stops.
enum MakeStop {
    /// The message to print.
    Message(String),
    /// A failure from forerun.
    Failure(Box<Failure>),
}

impl<E: Into<Failure>> From<E> for MakeStop {
    fn from(failure: E) -> Self {
        Self::Failure(Box::new(failure.into()))
    }
}

type MakeEnded<T> = Result<T, MakeStop>;

fn stop<T>(message: impl Into<String>) -> MakeEnded<T> {
    Err(MakeStop::Message(message.into()))
}

/// Runs the program. Returns the exit status.
pub fn run(name: &OsStr, words: &[OsString], tool: Tool) -> u8 {
    let name = Path::new(name).file_name().unwrap_or(name);
    let name = name.to_string_lossy();
    let parsed = options::parse(tool, &name, words).and_then(|call| {
        let writer = writer(&call, &name)?;
        Ok((call, writer))
    });
    let (call, writer) = match parsed {
        Ok(parsed) => parsed,
        Err(refusal) => {
            let manual = Manual {
                version: &format!("{name} version 4.6.1"),
                usage: &usage::text(tool, &name),
                mistake: FATAL,
            };
            return manual.answer(refusal);
        }
    };
    log::init(0, false);
    secrets::warn();
    let context = Context::new(Global {
        quiet: call.quiet || !call.progress,
        ..Global::default()
    });
    match make(&context, &call, writer) {
        Ok(()) => DONE,
        Err(MakeStop::Message(message)) => {
            complain(&message);
            FATAL
        }
        Err(MakeStop::Failure(failure)) => {
            complain(&format!("FATAL ERROR: {}", super::in_one_line(&failure)));
            FATAL
        }
    }
}

/// Returns the writer options except the priorities.
fn writer(call: &MakeCall, program: &str) -> Parsed<SquashfsOptions> {
    let memory = call.memory.map_or(0, |bytes| (bytes / 4).min(MEMORY));
    let options = SquashfsOptions {
        encoding: compressor::encoding(call, program)?,
        block_size: call.block_size,
        fragments: call.fragments,
        duplicates: call.duplicates,
        sparse: call.sparse,
        exportable: call.exports,
        xattrs: call.xattrs,
        compress: call.compress,
        pad: call.pad,
        threads: call.processors.map_or(0, |count| count.min(256).into()),
        memory: usize::try_from(memory).unwrap_or(0),
        ..SquashfsOptions::default()
    };
    match options.validate() {
        Ok(()) => Ok(options),
        Err(error) => told(format!("{program}: {}: {error}", compressor::name(call))),
    }
}

fn make(context: &Context, call: &MakeCall, mut options: SquashfsOptions) -> MakeEnded<()> {
    check_emulator()?;
    let times = changes::MakeTimes::new(call)?;
    options.mkfs_time = times.of_image();
    let sources = sources::MakeSources::new(call)?;
    options.priorities = sort::priorities(call, &sources)?;
    let excluded = exclude::Excluded::new(call)?;
    let output = output_path(call);
    refuse_output(call, &output)?;
    // Read before the process enters its sandbox, which hides system files.
    let names = Names::read();
    interrupt::defer();
    let old = output.metadata().ok();
    let mut target = Target::create(&output, true, "an image").map_err(|failure| {
        let message = format!("Could not create destination file: {}", failure.message);
        MakeStop::Message(message)
    })?;
    target.begin_at(call.offset)?;
    let new = target.file().metadata().ok();
    let mut info = None;
    if let Some(path) = &call.info_file {
        let file = File::create(path);
        info = Some(file.map_err(|error| Failure::source(&error).of(path.display()))?);
    }
    let ids = old.into_iter().chain(new);
    let skip = ids
        .map(|metadata| (metadata.dev(), metadata.ino()))
        .collect();
    context.confine(&target.sandbox(sources.sandbox(call)));
    if !call.quiet {
        summary::begin(call, &output)?;
    }
    let mut tree = sources.read(call, excluded, skip, &times)?;
    changes::finish(call, &times, &mut tree)?;
    if call.info {
        summary::print(summary::list(&tree))?;
    }
    if let Some(mut file) = info {
        let written = file.write_all(summary::list(&tree).as_bytes());
        written.map_err(|error| Failure::source(&error))?;
    }
    let writer = Writer::Squashfs(options);
    if let Some(lost) = lost_properties(&writer, &tree) {
        complain(&lost);
    }
    let len = write::write(context, call, &writer, &mut tree, &mut target)?;
    target.commit()?;
    if !call.quiet {
        summary::end(call, &names, &tree, len)?;
    }
    Ok(())
}

/// Returns the path of the image. `-` is an ordinary file name here.
fn output_path(call: &MakeCall) -> PathBuf {
    match call.output.as_bytes() {
        b"-" => PathBuf::from("./-"),
        _ => PathBuf::from(&call.output),
    }
}

/// Refuses an existing output unless it must be replaced: forerun does not append to images.
fn refuse_output(call: &MakeCall, output: &Path) -> MakeEnded<()> {
    let metadata = match output.metadata() {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => {
            return stop(format!("Could not open destination: {}", reason(&error)));
        }
    };
    let kind = metadata.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return stop("Destination not block device or regular file");
    }
    if call.replace {
        return Ok(());
    }
    let shown = output.display();
    if call.tar && call.sources.is_empty() {
        return stop(format!(
            "Destination {shown} exists already.  Use -force to replace it"
        ));
    }
    stop(if exclude::is_squashfs(output, call.offset) {
        format!(
            "{shown} exists already, and forerun appends to no image.  Use -noappend to replace it"
        )
    } else {
        format!(
            "Can't find a SQUASHFS superblock on {shown}\nFailed to read existing filesystem - will not overwrite - ABORTING!\nTo force Mksquashfs to write to this file use -noappend"
        )
    })
}

/// Exit codes of failures that the program reports and ignores.
const fn is_of_source(exit: Exit) -> bool {
    matches!(exit, Exit::Source | Exit::Partial)
}
