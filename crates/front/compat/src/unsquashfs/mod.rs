//! `unsquashfs`: extracts, lists and describes SquashFS images.
//!
//! Exit codes: 0 success; 1 the program stopped early; 2 completed with reported errors.

mod cat;
mod extract;
mod follow;
mod listing;
mod options;
mod superblock;
pub mod usage;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use forerun::Image;
use forerun::vfs::FileType;
use forerun_export::{Filter, Selected, Selection};
use jiff::tz::TimeZone;

use super::names::Names;
use super::{complain, in_one_line};
use crate::args::{Global, ImageArgs, SourceArgs};
use crate::context::Context;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::options::{Manual, Refusal};
use crate::output::Output;
use crate::source::PreparedImage;
use crate::{log, secrets};

use super::image_limits;
use super::pattern::{PathChoice, Syntax};
use listing::Style;
use options::{UnsquashCall, UnsquashWork};

#[cfg(test)]
pub use options::TABLE;

const DONE: u8 = 0;
const FATAL: u8 = 1;
const IN_PART: u8 = 2;

/// The reason why the program stops.
enum Stop {
    Told,
    /// Prints `FATAL ERROR:` and the message.
    Fatal(String),
    Failure(Box<Failure>),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failure(Box::new(failure))
    }
}

type Ended = std::result::Result<u8, Stop>;

pub fn run(name: &OsStr, words: &[OsString]) -> u8 {
    let name = name.to_string_lossy();
    let manual = Manual {
        version: "unsquashfs version 4.5.1",
        usage: &usage::text(&name),
        mistake: FATAL,
    };
    let call = match options::parse(&name, words) {
        Ok(call) => call,
        Err(refusal) => return manual.answer(refusal),
    };
    log::init(0, false);
    secrets::warn();
    let context = Context::new(Global {
        quiet: call.no_progress || call.quiet,
        ..Global::default()
    });
    if call.version {
        manual.print_version();
    }
    let Some(image) = &call.image else {
        return if call.version {
            FATAL
        } else {
            manual.answer(Refusal::Usage(String::new()))
        };
    };
    let ended = work(&context, &call, image);
    match ended.unwrap_or_else(|stop| tell(&stop)) {
        IN_PART if call.strict => FATAL,
        IN_PART if call.no_exit_code => DONE,
        code => code,
    }
}

fn tell(stop: &Stop) -> u8 {
    match stop {
        Stop::Told => {}
        Stop::Fatal(message) => complain(&format!("FATAL ERROR: {message}")),
        Stop::Failure(failure) if failure.exit == Exit::BrokenPipe => return failure.exit.code(),
        Stop::Failure(failure) => complain(&format!("FATAL ERROR: {}", in_one_line(failure))),
    }
    FATAL
}

fn work(context: &Context, call: &UnsquashCall, image: &OsString) -> Ended {
    let syntax = match (call.regex, call.no_wildcards || call.follow) {
        (_, true) => Syntax::Names,
        (true, _) => Syntax::Regex,
        (false, false) => Syntax::Shell,
    };
    let shown = image.to_string_lossy();
    let prepared = context.prepare(&image_args(image, call));
    let prepared = prepared.map_err(|failure| unopened(failure, &shown))?;
    // Reads system files before the process enters its sandbox.
    let style = style(call);
    match call.work {
        UnsquashWork::Extract => extract::run(context, call, syntax, prepared, style),
        UnsquashWork::List { form, concise } => {
            let image = open(context, prepared, &shown)?;
            let choice = choose(call, syntax, &image)?;
            let style = Style { form, ..style };
            list(&image, &choice, &style, concise)?;
            Ok(DONE)
        }
        UnsquashWork::Cat => {
            let image = open(context, prepared, &shown)?;
            cat::run(&image, call, syntax)
        }
        UnsquashWork::Stat => {
            let image = open(context, prepared, &shown)?;
            print(superblock::describe(&image, &shown, &style.zone)?)
        }
        UnsquashWork::MkfsTime => {
            let image = open(context, prepared, &shown)?;
            print(format!("{}\n", superblock::mkfs_time(&image)?))
        }
    }
}

fn print(text: String) -> Ended {
    let mut out = Output::stdout()?;
    out.text(text)?;
    out.finish()?;
    Ok(DONE)
}

/// Opens an image for work that needs no other files. The process enters its sandbox.
fn open(
    context: &Context,
    prepared: PreparedImage,
    shown: &str,
) -> std::result::Result<Image, Stop> {
    context.confine(&prepared.sandbox());
    let opened = context.open_prepared(prepared, None);
    opened.map_err(|failure| unopened(failure, shown))
}

/// Returns the reason why an image is not opened, in the original's words if it has any.
fn unopened(failure: Failure, shown: &str) -> Stop {
    match failure.exit {
        Exit::Source => {
            complain(&format!(
                "Could not open {shown}, because {}",
                failure.message
            ));
            Stop::Told
        }
        Exit::Format => Stop::Fatal(format!("Can't find a valid SQUASHFS superblock on {shown}")),
        _ => failure.into(),
    }
}

fn choose(
    call: &UnsquashCall,
    syntax: Syntax,
    image: &Image,
) -> std::result::Result<PathChoice, Stop> {
    let paths = if call.follow {
        follow::resolved(image, &call.paths, call.missing)?
    } else {
        call.paths.clone()
    };
    let choice = PathChoice::new(&paths, &call.excludes, syntax, call.max_depth);
    choice.map_err(Stop::Fatal)
}

fn selection(choice: Arc<PathChoice>) -> Selection {
    Selection {
        filter: Filter::new(move |path, is_dir| choice.takes(path, is_dir)),
        ..Selection::default()
    }
}

fn style(call: &UnsquashCall) -> Style {
    let dest = call.dest.as_deref().unwrap_or(OsStr::new("squashfs-root"));
    Style {
        form: call.info.unwrap_or_default(),
        dest: dest.as_bytes().to_vec(),
        names: Names::read(),
        zone: if call.utc {
            TimeZone::UTC
        } else {
            TimeZone::system()
        },
    }
}

/// Lists the selected entries; with `concise`, without non-empty directories.
fn list(image: &Image, choice: &PathChoice, style: &Style, concise: bool) -> Result<()> {
    let fs = image.reader().fs();
    let mut out = Output::stdout()?;
    let mut walk = image.reader().walk(fs.root());
    while let Some(entry) = walk.next() {
        let entry = entry.map_err(|failed| Failure::from(failed.error).at(&failed.path))?;
        let metadata = entry
            .metadata
            .map_err(|error| Failure::from(error).at(&entry.path))?;
        let is_dir = metadata.kind == FileType::Directory;
        if !choice.takes(&entry.path, is_dir) {
            walk.skip_children();
            continue;
        }
        if concise && is_dir && !listing::is_empty(fs, entry.node)? {
            continue;
        }
        let entry = Selected::new(entry.path, entry.node, metadata);
        listing::write(&mut out, fs, style, &entry)?;
    }
    out.finish()
}

fn image_args(image: &OsString, call: &UnsquashCall) -> ImageArgs {
    ImageArgs {
        image: PathBuf::from(image),
        source: SourceArgs {
            format: Some("squashfs".to_string()),
            offset: call.offset,
            threads: call.processors.map(|count| count.min(256)),
            ..SourceArgs::default()
        },
        limits: image_limits(),
        ..ImageArgs::default()
    }
}
