//! `composefs-info`: lists the contents and objects of composefs images.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use forerun::Image;
use forerun::unstable::composefs::{
    Algorithm, Composefs, DumpName, Escape, ObjectStore, Payload, dump_line,
};
use forerun::vfs::{FileType, Held, Metadata, NodeId};
use forerun_sandbox::Sandbox;
use rustix::io::Errno;

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
  dump IMAGE...             print all nodes, as mkcomposefs --from-file reads
                            them
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

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Choices {
    basedir: Option<PathBuf>,
    /// Names of root entries to process; all if empty.
    filter: Vec<Vec<u8>>,
    digest: Algorithm,
}

impl Choices {
    fn takes(&self, path: &[u8]) -> bool {
        let top = path.split(|&byte| byte == b'/').next();
        self.filter.is_empty() || top.is_some_and(|top| self.filter.iter().any(|name| name == top))
    }
}

/// The requested work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InfoWork {
    List,
    Dump,
    Objects,
    Missing,
    Measure,
}

const COMMANDS: &[(&str, InfoWork)] = &[
    ("ls", InfoWork::List),
    ("dump", InfoWork::Dump),
    ("objects", InfoWork::Objects),
    ("missing-objects", InfoWork::Missing),
    ("measure-file", InfoWork::Measure),
];

/// A valid command line.
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
    let open = |dir: &Path| {
        let opened = ObjectStore::open(dir);
        opened.map_err(|error| Failure::source(&error).of(dir.display()))
    };
    let store = basedir.map(open).transpose()?;
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
            InfoWork::Dump => dump(&image, &call.choices, &mut out).map_err(named)?,
            _ => collect(&image, &call.choices, &mut objects).map_err(named)?,
        }
    }
    for object in objects {
        if let (Some(store), InfoWork::Missing) = (&store, call.work)
            && is_in(store, &object)?
        {
            continue;
        }
        out.name(&object)?;
        out.text("\n")?;
    }
    out.finish()
}

/// Returns whether the store has a regular file at a path from an image.
fn is_in(store: &ObjectStore, path: &[u8]) -> Result<bool> {
    let Some(payload) = Payload::parse(path) else {
        return Ok(false);
    };
    let absent = [Errno::LOOP, Errno::NOTDIR, Errno::NAMETOOLONG];
    let absent = absent.map(|errno| Some(errno.raw_os_error()));
    match store.len_of(&payload.path()) {
        Ok(len) => Ok(len.is_some()),
        // Behind a link or a file, or of a name that no directory can hold.
        Err(error) if absent.contains(&error.raw_os_error()) => Ok(false),
        Err(error) => Err(Failure::source(&error).at(path)),
    }
}

fn driver(image: &Image) -> Result<&Composefs> {
    let driver = image.driver();
    driver.ok_or_else(|| Failure::usage("the image was opened as another format"))
}

/// Passes each node that the options select, with its path without a leading slash.
fn each_node(
    image: &Image,
    choices: &Choices,
    mut visit: impl FnMut(&[u8], NodeId, &Metadata) -> Result<()>,
) -> Result<()> {
    for entry in image.reader().walk(image.reader().fs().root()) {
        let entry = entry.map_err(|failed| Failure::from(failed.error).at(&failed.path))?;
        if !entry.path.is_empty() && !choices.takes(&entry.path) {
            continue;
        }
        let failed = |error| Failure::from(error).at(&entry.path);
        let metadata = entry.metadata.map_err(failed)?;
        visit(&entry.path, entry.node, &metadata).map_err(|failure| failure.at(&entry.path))?;
    }
    Ok(())
}

/// Prints the files. After a tab follows the object or the link target.
fn list(image: &Image, choices: &Choices, out: &mut Output) -> Result<()> {
    let fs = driver(image)?;
    each_node(image, choices, |path, node, metadata| {
        if path.is_empty() {
            return Ok(());
        }
        let mut line = Vec::new();
        Escape::default().push(&[b"/", path].concat(), &mut line);
        match metadata.kind {
            FileType::Regular => {
                if let Some(object) = fs.redirect(node)? {
                    line.extend(b"\t@ ");
                    Escape::BLANK.push(&object, &mut line);
                }
            }
            FileType::Symlink => {
                line.extend(b"\t-> ");
                Escape::BLANK.push(&image.reader().fs().read_link(node)?, &mut line);
            }
            FileType::Directory => line.extend(b"/\t"),
            _ => {}
        }
        out.line(line)
    })
}

/// Prints a dump line for each node.
fn dump(image: &Image, choices: &Choices, out: &mut Output) -> Result<()> {
    let fs = driver(image)?;
    let reader = image.reader();
    let mut held = Held::new(reader.limits());
    let mut seen: HashMap<NodeId, Vec<u8>> = HashMap::new();
    each_node(image, choices, |path, node, metadata| {
        let path = [b"/", path].concat();
        let link_to = seen.get(&node).map(Vec::as_slice);
        let name = DumpName {
            path: &path,
            link_to,
        };
        let line = dump_line(fs, (node, metadata), &name, |len| {
            Ok(reader.read(node, 0, len)?.to_vec())
        })?;
        out.text(line)?;
        if metadata.nlink != 1 && !metadata.is_dir() && link_to.is_none() {
            held.add(path.len())?;
            seen.insert(node, path);
        }
        Ok(())
    })
}

fn collect(image: &Image, choices: &Choices, objects: &mut BTreeSet<Vec<u8>>) -> Result<()> {
    let fs = driver(image)?;
    let mut held = Held::new(image.reader().limits());
    each_node(image, choices, |_, node, metadata| {
        if metadata.is_file()
            && let Some(object) = fs.redirect(node)?
        {
            held.add(object.len())?;
            objects.insert(object);
        }
        Ok(())
    })
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
            &["dumps", "a"],
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
