//! `forerun __complete`: completes paths in an image on a command line.
//!
//! The scripts of `forerun completions` call this while a user types. It prints nothing but
//! candidates, contacts no server, waits for no lock, and reads a single directory.

use std::ffi::OsString;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use clap::FromArgMatches;
use forerun::Reader;
use forerun::vfs::{DirCursor, FileType, FollowLast, resolve};

use super::{Cli, Command, CompleteArgs};
use crate::args::{Global, ImageArgs, image_path, is_stdin};
use crate::context::Context;
use crate::error::Result;
use crate::exit::Exit;
use crate::output::Output;
use crate::{layers, remote};

/// Most candidates printed. A shell shows no more than a few hundred.
const MOST: usize = 10_000;

/// Prints the candidates. Exits with status 2 if the last word is not a path in an image that can
/// be opened.
pub fn run(_: &Context, args: &CompleteArgs) -> Result {
    let Some((typed, image)) = args.words.split_last().and_then(|(typed, before)| {
        let image = image_of(before)?;
        Some((image_path(typed), image))
    }) else {
        return Ok(Exit::Usage);
    };
    let global = Global {
        quiet: true,
        ..Global::default()
    };
    let Ok(opened) = Context::new(global).open(&image) else {
        return Ok(Exit::Usage);
    };
    let mut out = Output::stdout()?;
    out.text(candidates(opened.reader(), typed))?;
    out.finish()?;
    Ok(Exit::Ok)
}

/// Returns the image whose paths may follow these words. Returns `None` if another kind of word
/// follows, or the image is not a local file.
fn image_of(before: &[OsString]) -> Option<ImageArgs> {
    // No argument of a process can contain a zero byte, so no option has this value by chance.
    let path = OsString::from_vec(b"\0".to_vec());
    let program = OsString::from("forerun");
    let line = [&program].into_iter().chain(before).chain([&path]);
    let line: Vec<OsString> = line.cloned().collect();
    let line = layers::with_image(&line, crate::knows_layers);
    let matches = super::help::command().try_get_matches_from(line).ok()?;
    let (mut image, last) = match Cli::from_arg_matches(&matches).ok()?.command {
        Command::Ls(args) => (args.image, args.paths.last().cloned()),
        Command::Cat(args) => (args.image, args.paths.last().cloned()),
        Command::Extract(args) => (args.image, args.select.paths.last().cloned()),
        Command::Tar(args) => (args.image, args.select.paths.last().cloned()),
        Command::Dump(args) => (args.image, args.path),
        _ => return None,
    };
    let is_read_here = |image: &PathBuf| !is_stdin(image) && !remote::is_remote(image);
    let is_local = is_read_here(&image.image) && image.layers.iter().all(is_read_here);
    image.source.no_lock = true;
    (last == Some(path) && is_local).then_some(image)
}

/// Returns the entries that complete `typed`, one per line, as the user began to type them.
/// Directories end with a slash.
fn candidates(reader: &Reader, typed: &[u8]) -> Vec<u8> {
    let split = typed.iter().rposition(|&byte| byte == b'/');
    let (parent, begin) = typed.split_at(split.map_or(0, |slash| slash + 1));
    let fs = reader.fs();
    let mut lines = Vec::new();
    let Ok(dir) = resolve(fs, parent, FollowLast::Yes, reader.limits()) else {
        return lines;
    };
    let mut found = 0;
    // If the listing is damaged, the entries before the damage are offered.
    let _as_far_as_it_goes = fs.read_dir(dir, DirCursor::START, &mut |entry| {
        // A line break in a name would end the candidate.
        let is_shown =
            entry.name.starts_with(begin) && !entry.name.iter().any(u8::is_ascii_control);
        if is_shown {
            lines.extend_from_slice(parent);
            lines.extend_from_slice(entry.name);
            lines.extend_from_slice(match entry.kind {
                FileType::Directory => b"/\n",
                _ => b"\n",
            });
            found += 1;
        }
        if found < MOST {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    });
    lines
}
