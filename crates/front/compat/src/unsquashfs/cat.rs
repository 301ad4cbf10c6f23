//! `unsquashfs -cat`: the contents of the files that patterns match, in the order of the command
//! line.

use std::io::Write;

use forerun::Image;
use forerun::vfs::{Error, FileType, FollowLast, NodeId, resolve};

use super::options::UnsquashCall;
use super::{DONE, Ended, IN_PART, Stop, complain};
use crate::error::{Failure, Result};
use crate::output::{self, stdout_file};
use crate::pattern::{PathChoice, Syntax};

const CHUNK: usize = 1 << 20;

/// Writes the files to standard output.
pub fn run(image: &Image, call: &UnsquashCall, syntax: Syntax) -> Ended {
    let mut out = stdout_file()?;
    let mut code = DONE;
    let told = |code: &mut u8, text: String| {
        complain(&format!("cat: {text}"));
        *code = IN_PART;
    };
    for pattern in &call.paths {
        let choice = PathChoice::new(std::slice::from_ref(pattern), &[], syntax, None);
        let choice = choice.map_err(Stop::Fatal)?;
        let paths = matches(image, &choice)?;
        if paths.is_empty() {
            let pattern = String::from_utf8_lossy(pattern);
            told(
                &mut code,
                format!("no matches for /{}", pattern.trim_start_matches('/')),
            );
        }
        for path in paths {
            let shown = String::from_utf8_lossy(&path).into_owned();
            match file(image, &path) {
                Ok((node, size)) => write(image, (node, size), &path, &mut out)?,
                Err(why) => told(&mut code, format!("/{shown} {why}")),
            }
        }
    }
    Ok(code)
}

/// Returns the paths that a pattern matches.
fn matches(image: &Image, choice: &PathChoice) -> Result<Vec<Vec<u8>>> {
    let mut found = Vec::new();
    let mut held = forerun::vfs::Held::new(image.reader().limits());
    let mut walk = image.reader().walk(image.reader().fs().root());
    while let Some(entry) = walk.next() {
        let entry = entry.map_err(|failed| Failure::from(failed.error).at(&failed.path))?;
        let kind = entry.metadata.as_ref().map(|metadata| metadata.kind);
        let is_dir = kind.is_ok_and(|kind| kind == FileType::Directory);
        if !choice.takes(&entry.path, is_dir) {
            walk.skip_children();
        } else if choice.names(&entry.path) {
            held.add(entry.path.len())?;
            found.push(entry.path.clone());
            walk.skip_children();
        }
    }
    Ok(found)
}

/// Returns the regular file at the end of a path and its size, or the reason why there is none.
fn file(image: &Image, path: &[u8]) -> std::result::Result<(NodeId, u64), &'static str> {
    let reader = image.reader();
    let found = resolve(reader.fs(), path, FollowLast::Yes, reader.limits());
    let found = found.and_then(|node| Ok::<_, Error>((node, reader.fs().metadata(node)?)));
    let (node, metadata) = found.map_err(|_| "failed to resolve symbolic link")?;
    match metadata.kind {
        FileType::Regular => Ok((node, metadata.size)),
        FileType::Directory => Err("is a directory"),
        _ => Err("is not a regular file"),
    }
}

fn write(
    image: &Image,
    (node, size): (NodeId, u64),
    path: &[u8],
    out: &mut impl Write,
) -> Result<()> {
    let mut at = 0;
    while at < size {
        let data = image.reader().read(node, at, CHUNK);
        let data = data.map_err(|error| Failure::from(error).at(path))?;
        if data.is_empty() {
            break;
        }
        out.write_all(&data)
            .map_err(|error| output::failed(&error))?;
        at = at.saturating_add(u64::try_from(data.len()).unwrap_or(u64::MAX));
    }
    Ok(())
}
