//! `composefs-info`: lists what composefs images hold and refer to.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use forerun::Image;
use forerun::unstable::composefs::{Algorithm, Composefs};
use forerun::vfs::{FileType, Held};
use forerun_sandbox::Sandbox;

use super::mkfs::hash;
use super::{DONE, FAILED, tell};
use crate::args::{ImageArgs, SourceArgs};
use crate::begin;
use crate::context::Context;
use crate::error::{Failure, Result};
use crate::options::Effect::{Help, Value, Version};
use crate::options::{Manual, Opt, Parsed, Refusal, getopt, options};
use crate::output::Output;

const PROGRAM: &str = "composefs-info";

pub const USAGE: &str = "\
Usage: composefs-info [--basedir=PATH] [--filter=NAME]... COMMAND FILE...

  ls IMAGE...               list the files of images
  objects IMAGE...          list the objects that images refer to
  missing-objects IMAGE...  list objects that the store lacks; needs --basedir
  measure-file FILE...      print the fs-verity digests of files
  --basedir=PATH            object store
  --filter=NAME             only this entry of the root, and what is below it
  --digest=HASH             hash of measure-file: sha256 or sha512
                            [default: sha256]
  --help, --version
";

const MANUAL: Manual<'_> = Manual {
    version: "composefs-info 1.0.8",
    usage: USAGE,
    mistake: FAILED,
};

pub const TABLE: &[Opt<Choices>] = options! {
    "-h" | "--help" => Help;
    "--version" => Version;
    "--basedir" => Value("", |choices, value| value.set(&mut choices.basedir));
    "--digest" => Value("composefs-info: {}: not sha256 or sha512", |choices, value| {
        choices.digest = hash(value)?;
        Ok(())
    });
    "--filter" => Value("", |choices, value| {
        let name = value.given.as_bytes();
        if name.contains(&b'/') {
            return mistake(&format!("Filter must be a single name: {}", value.text()));
        }
        choices.filter.push(name.to_vec());
        Ok(())
    });
};

/// The options of a command line.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Choices {
    basedir: Option<PathBuf>,
    /// Entries of the root that are looked at; all where there is none.
    filter: Vec<Vec<u8>>,
    digest: Algorithm,
}

impl Choices {
    fn takes(&self, path: &[u8]) -> bool {
        let top = path.split(|&byte| byte == b'/').next();
        self.filter.is_empty() || top.is_some_and(|top| self.filter.iter().any(|name| name == top))
    }
}

/// The work that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InfoWork {
    List,
    Objects,
    Missing,
    Measure,
}

/// The commands and their names.
const COMMANDS: &[(&str, InfoWork)] = &[
    ("ls", InfoWork::List),
    ("objects", InfoWork::Objects),
    ("missing-objects", InfoWork::Missing),
    ("measure-file", InfoWork::Measure),
];

/// A command line that can be followed.
#[derive(Debug, PartialEq, Eq)]
struct ComposefsInfo {
    work: InfoWork,
    choices: Choices,
    files: Vec<OsString>,
}

fn mistake<T>(message: &str) -> Parsed<T> {
    Err(Refusal::Usage(format!("{PROGRAM}: {message}")))
}

fn parse(words: &[OsString]) -> Parsed<ComposefsInfo> {
    let mut choices = Choices::default();
    let mut operands = getopt(PROGRAM, TABLE, words, &mut choices)?.into_iter();
    let Some(command) = operands.next() else {
        return mistake("No command specified");
    };
    let known = COMMANDS.iter().find(|(name, _)| command == *name);
    let Some((_, work)) = known else {
        return mistake(&format!("Unknown command '{}'", command.to_string_lossy()));
    };
    let files: Vec<_> = operands.collect();
    if files.is_empty() {
        return mistake("No image path specified");
    }
    if *work == InfoWork::Missing && choices.basedir.is_none() {
        return mistake("missing-objects needs --basedir");
    }
    Ok(ComposefsInfo {
        work: *work,
        choices,
        files,
    })
}

/// Runs the program. Returns the exit status.
pub fn run(words: &[OsString]) -> u8 {
    let call = match parse(words) {
        Ok(call) => call,
        Err(refusal) => return MANUAL.answer(refusal),
    };
    let context = begin();
    match look(&context, &call) {
        Ok(()) => DONE,
        Err(failure) => {
            tell(PROGRAM, &failure);
            FAILED
        }
    }
}

fn look(context: &Context, call: &ComposefsInfo) -> Result<()> {
    let mut out = Output::stdout()?;
    if call.work == InfoWork::Measure {
        for file in &call.files {
            let failed =
                |error: std::io::Error| Failure::source(&error).of(Path::new(file).display());
            let opened = std::fs::File::open(file).map_err(failed)?;
            let (digest, _) = call.choices.digest.measure(opened).map_err(failed)?;
            out.line(digest.to_string())?;
        }
        return out.finish();
    }
    let basedir = call.choices.basedir.as_deref();
    if let Some(dir) = basedir {
        // Without this check, all objects would be listed as missing.
        let failed = |error: std::io::Error| Failure::source(&error).of(dir.display());
        if !dir.metadata().map_err(failed)?.is_dir() {
            return Err(failed(std::io::ErrorKind::NotADirectory.into()));
        }
    }
    let prepared = call.files.iter().map(|image| {
        let args = ImageArgs {
            image: PathBuf::from(image),
            source: SourceArgs {
                format: Some("composefs".to_string()),
                ..SourceArgs::default()
            },
            ..ImageArgs::default()
        };
        Ok((image, context.prepare(&args)?))
    });
    let prepared: Vec<_> = prepared.collect::<Result<_>>()?;
    let sandbox = prepared.iter().fold(Sandbox::new(), |sandbox, (_, image)| {
        sandbox.and(image.sandbox())
    });
    context.confine(&match basedir {
        Some(dir) => sandbox.read(dir),
        None => sandbox,
    });
    let mut objects = BTreeSet::new();
    for (name, image) in prepared {
        let image = context.open_prepared(image, None)?;
        let named = |failure: Failure| failure.of(Path::new(name).display());
        match call.work {
            InfoWork::List => list(&image, &call.choices, &mut out).map_err(named)?,
            _ => collect(&image, &call.choices, &mut objects).map_err(named)?,
        }
    }
    for object in objects {
        if let (Some(dir), InfoWork::Missing) = (basedir, call.work) {
            let path = dir.join(&object);
            let found = path.try_exists();
            if found.map_err(|error| Failure::source(&error).of(path.display()))? {
                continue;
            }
        }
        out.line(object)?;
    }
    out.finish()
}

/// Returns the path of the object with the contents of a file, if it is one.
fn object_of(image: &Image, node: forerun::vfs::NodeId) -> Result<Option<String>> {
    let missing = || Failure::usage("the image was opened as another format");
    let driver: &Composefs = image.driver().ok_or_else(missing)?;
    Ok(driver.object_path(node)?)
}

/// Prints the files, with a tab and the object or the target behind the names.
fn list(image: &Image, choices: &Choices, out: &mut Output) -> Result<()> {
    let fs = image.reader().fs();
    for entry in image.reader().walk(fs.root()) {
        let entry = entry.map_err(|failed| Failure::from(failed.error).at(&failed.path))?;
        if entry.path.is_empty() || !choices.takes(&entry.path) {
            continue;
        }
        let metadata = entry
            .metadata
            .map_err(|error| Failure::from(error).at(&entry.path))?;
        let path = [b"/", entry.path.as_slice()].concat();
        out.text(escaped(&path, Blank::Kept))?;
        match metadata.kind {
            FileType::Regular => {
                if let Some(object) =
                    object_of(image, entry.node).map_err(|failure| failure.at(&entry.path))?
                {
                    out.text(format!("\t@ {object}"))?;
                }
            }
            FileType::Symlink => {
                out.text("\t-> ")?;
                out.text(escaped(&fs.read_link(entry.node)?, Blank::Escaped))?;
            }
            FileType::Directory => out.text("/\t")?,
            _ => {}
        }
        out.text("\n")?;
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Blank {
    Kept,
    Escaped,
}

/// Escapes a text as the program of composefs does.
fn escaped(text: &[u8], blank: Blank) -> String {
    let mut out = String::with_capacity(text.len());
    for &byte in text {
        match byte {
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            b' ' if blank == Blank::Kept => out.push(' '),
            b'!'..=b'~' => out.push(char::from(byte)),
            _ => {
                let hex = format!("\\x{byte:02x}");
                out.push_str(&hex);
            }
        }
    }
    out
}

fn collect(image: &Image, choices: &Choices, objects: &mut BTreeSet<String>) -> Result<()> {
    let mut held = Held::new(image.reader().limits());
    for entry in image.reader().walk(image.reader().fs().root()) {
        let entry = entry.map_err(|failed| Failure::from(failed.error).at(&failed.path))?;
        if entry.path.is_empty() || !choices.takes(&entry.path) {
            continue;
        }
        let metadata = entry
            .metadata
            .map_err(|error| Failure::from(error).at(&entry.path))?;
        if metadata.kind != FileType::Regular {
            continue;
        }
        if let Some(object) =
            object_of(image, entry.node).map_err(|failure| failure.at(&entry.path))?
        {
            held.add(object.len())?;
            objects.insert(object);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines() {
        let words = |line: &[&str]| line.iter().map(OsString::from).collect::<Vec<_>>();
        let call = parse(&words(&["--basedir=s", "missing-objects", "a", "b"])).unwrap();
        assert_eq!((call.work, call.files.len()), (InfoWork::Missing, 2));
        for line in [
            &[][..],
            &["ls"],
            &["dump", "a"],
            &["missing-objects", "a"],
            &["--filter=x/y", "ls", "a"],
        ] {
            assert!(parse(&words(line)).is_err(), "{line:?}");
        }
        let text = include_str!("../../../../../docs/compat.md");
        let (_, text) = text.split_once("## composefs-info").unwrap();
        assert!(COMMANDS.iter().all(|(name, _)| text.contains(name)));
    }
}
