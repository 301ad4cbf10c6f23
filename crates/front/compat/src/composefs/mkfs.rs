//! `mkcomposefs`: makes composefs images of directories and dumps.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forerun::build::{
    ComposefsOptions, ImageOutput, NodeKind, ScanOptions, Times, Tree, XattrFilter, scan,
};
use forerun::unstable::composefs::write::{DumpError, Files, read_dump, write_metadata};
use forerun::unstable::composefs::{Algorithm, Digest};
use forerun::vfs::Timestamp;
use forerun::{Observer, Writer};
use forerun_sandbox::Sandbox;

use super::{DONE, FAILED, tell};
use crate::begin;
use crate::confine::{NAMES, TREES, check_emulator};
use crate::context::Context;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::interrupt;
use crate::losses::lost_properties;
use crate::options::Effect::{Help, Set, Value, Version};
use crate::options::{self, Manual, Opt, Parsed, Refusal, getopt, options};
use crate::output::Output;
use crate::stdin::input_name;
use crate::target::Target;

const PROGRAM: &str = "mkcomposefs";

pub const USAGE: &str = "\
Usage: mkcomposefs [OPTIONS] SOURCE IMAGE

Makes the composefs image IMAGE from the directory SOURCE; - for standard
output.
  --from-file             SOURCE is a list of nodes, as composefs-info dump
                          prints it; - for standard input
  --digest-store=PATH     object store for file contents
  --print-digest          print the digest of the image
  --digest=HASH           sha256 or sha512 [default: sha256]
  --print-digest-only     print the digest, and make no image
  --use-epoch             set all times to 1970
  --skip-devices          leave out devices and whiteouts
  --skip-xattrs           leave out extended attributes
  --user-xattrs           keep only user.* attributes
  --min-version=N, --max-version=N   versions of the format, 0 or 1; where one is
                          given, the other is 0 [default: 0 and 1]
  --threads=N             number of threads that read
  --help, --version
";

const MANUAL: Manual<'_> = Manual {
    version: "mkcomposefs 1.0.8",
    usage: USAGE,
    mistake: FAILED,
};

/// The highest version of the format.
const VERSIONS: u32 = 1;
const THREADS: u32 = 1024;

pub const TABLE: &[Opt<MkComposefs>] = options! {
    "-h" | "--help" => Help;
    "--version" => Version;
    "--digest-store" => Value("", |call, value| value.set(&mut call.options.objects));
    "--from-file" => Set(|call| call.from_file = true);
    "--print-digest" => Set(|call| call.print_digest = true);
    "--print-digest-only" => Set(|call| (call.print_digest, call.only) = (true, true));
    "--use-epoch" => Set(|call| call.use_epoch = true);
    "--skip-devices" => Set(|call| call.skip_devices = true);
    "--skip-xattrs" => Set(|call| call.skip_xattrs = true);
    "--user-xattrs" => Set(|call| call.user_xattrs = true);
    "--digest" => Value("mkcomposefs: {}: not sha256 or sha512", |call, value| {
        call.options.digest = hash(value)?;
        Ok(())
    });
    "--min-version" => Value("mkcomposefs: {}: not a number up to 1", |call, value| {
        call.min_version = Some(up_to(VERSIONS, value)?);
        Ok(())
    });
    "--max-version" => Value("mkcomposefs: {}: not a number up to 1", |call, value| {
        call.max_version = Some(up_to(VERSIONS, value)?);
        Ok(())
    });
    "--threads" => Value("mkcomposefs: {}: not a number up to 1024", |call, value| {
        call.options.threads = up_to(THREADS, value)?.try_into().unwrap_or(0);
        Ok(())
    });
};

pub fn hash(value: &options::Value<'_>) -> Parsed<Algorithm> {
    Algorithm::by_name(&value.text()).ok_or_else(|| value.invalid())
}

fn up_to(most: u32, value: &options::Value<'_>) -> Parsed<u32> {
    let number = value.number()?;
    if number > most {
        return Err(value.invalid());
    }
    Ok(number)
}

/// A valid command line.
#[derive(Debug, Default)]
pub struct MkComposefs {
    source: PathBuf,
    /// `None` if only the digest is wanted.
    image: Option<PathBuf>,
    /// The source is a dump, which states objects and attributes as they must be.
    from_file: bool,
    print_digest: bool,
    only: bool,
    use_epoch: bool,
    skip_devices: bool,
    skip_xattrs: bool,
    user_xattrs: bool,
    min_version: Option<u32>,
    max_version: Option<u32>,
    options: ComposefsOptions,
}

fn mistake<T>(message: impl std::fmt::Display) -> Parsed<T> {
    Err(Refusal::Usage(format!("{PROGRAM}: {message}")))
}

fn parse(words: &[OsString]) -> Parsed<MkComposefs> {
    let mut call = MkComposefs::default();
    let mut operands = getopt(PROGRAM, TABLE, words, &mut call)?.into_iter();
    let Some(source) = operands.next() else {
        return mistake("No source path specified");
    };
    call.source = source.into();
    call.image = operands.next().map(PathBuf::from);
    match (&call.image, call.only) {
        (None, false) => return mistake("No destination path specified"),
        (Some(_), true) => return mistake("--print-digest-only makes no image"),
        _ => {}
    }
    if operands.next().is_some() {
        return mistake("too many arguments");
    }
    if call.from_file {
        call.options.objects = None;
    }
    if call.min_version.or(call.max_version).is_some() {
        let min = call.min_version.unwrap_or(0);
        call.options.min_version = min;
        call.options.max_version = call.max_version.unwrap_or(0).max(min);
    }
    match call.options.validate() {
        Ok(()) => Ok(call),
        Err(error) => mistake(error),
    }
}

/// Runs the program. Returns the exit status.
pub fn run(words: &[OsString]) -> u8 {
    let call = match parse(words) {
        Ok(call) => call,
        Err(refusal) => return MANUAL.answer(refusal),
    };
    let context = begin();
    match build(&context, &call) {
        Ok(_) => DONE,
        Err(failure) => {
            tell(PROGRAM, &failure);
            FAILED
        }
    }
}

fn build(context: &Context, call: &MkComposefs) -> Result {
    check_emulator()?;
    let dump = call
        .from_file
        .then(|| open_dump(&call.source))
        .transpose()?;
    if dump.is_none() {
        check_directory(&call.source)?;
    }
    interrupt::defer();
    let image = call.image.as_deref();
    let mut target = image
        .map(|path| Target::create(path, true, "an image"))
        .transpose()?;
    let ids = match (&mut target, image.map(Path::metadata)) {
        (Some(target), Some(old)) => {
            let new = target.file().metadata().ok();
            let ids = old.ok().into_iter().chain(new);
            ids.map(|metadata| (metadata.dev(), metadata.ino()))
                .collect()
        }
        _ => Vec::new(),
    };
    let sandbox = Sandbox::new()
        .write_below(forerun::build::spool_dir())
        .keep(TREES);
    let sandbox = match dump {
        Some(_) => sandbox,
        None => sandbox.read(&call.source),
    };
    let sandbox = match &call.options.objects {
        Some(store) => {
            // The sandbox rule needs an existing directory. If it cannot be created, the writer
            // reports that.
            let _made = std::fs::create_dir_all(store);
            sandbox.write_below(store).keep(NAMES)
        }
        None => sandbox,
    };
    let sandbox = target
        .iter()
        .fold(sandbox, |sandbox, target| target.sandbox(sandbox));
    context.confine(&sandbox);
    let (tree, files) = match dump {
        Some(dump) => {
            let name = input_name(&call.source);
            let read = read_dump(dump).map_err(|error| dump_failure(&error).of(name));
            read.map(|(tree, files)| (tree, Some(files)))?
        }
        None => (tree_of(call, ids)?, None),
    };
    let writer = Writer::Composefs(call.options.clone());
    if let Some(lost) = lost_properties(&writer, &tree) {
        context.note(&lost);
    }
    let write = |out: &mut dyn ImageOutput| write(&writer, call, &tree, files.as_ref(), out);
    let digest = match &mut target {
        Some(target) => write(target.file()).map_err(|failure| failure.of(&target.name))?,
        None => write(&mut Discarded)?,
    };
    target.map_or(Ok(()), Target::commit)?;
    if let (true, Some(digest)) = (call.print_digest, digest) {
        let mut out = Output::stdout()?;
        out.line(digest.to_string())?;
        out.finish()?;
    }
    Ok(Exit::Ok)
}

fn open_dump(path: &Path) -> Result<Box<dyn BufRead>> {
    if path == Path::new("-") {
        return Ok(Box::new(std::io::stdin().lock()));
    }
    let file = File::open(path);
    let file = file.map_err(|error| Failure::source(&error).of(path.display()))?;
    Ok(Box::new(BufReader::new(file)))
}

fn dump_failure(error: &DumpError) -> Failure {
    match error {
        DumpError::Io(error) => Failure::source(error),
        wrong => Failure::new(Exit::Source, "dump", wrong.to_string()),
    }
}

fn check_directory(path: &Path) -> Result<()> {
    let metadata = path.metadata();
    let metadata = metadata.map_err(|error| Failure::source(&error).of(path.display()))?;
    if !metadata.is_dir() {
        let message = "is not a directory";
        return Err(Failure::new(Exit::Source, "io", message).of(path.display()));
    }
    Ok(())
}

/// Reads the tree of a directory, and applies the options to it.
fn tree_of(call: &MkComposefs, skip: Vec<(u64, u64)>) -> Result<Tree> {
    let options = ScanOptions {
        xattrs: !call.skip_xattrs,
        skip,
        ..ScanOptions::default()
    };
    let mut tree = scan(&call.source, &options)?;
    change(call, &mut tree)?;
    Ok(tree)
}

/// Writes the image of a tree. `files` has the locations of the contents if the tree comes from a
/// dump.
fn write(
    writer: &Writer,
    call: &MkComposefs,
    tree: &Tree,
    files: Option<&Files>,
    out: &mut dyn ImageOutput,
) -> Result<Option<Digest>> {
    let observer = Arc::new(Observer::default());
    Ok(match files {
        Some(files) => Some(write_metadata(tree, files, &call.options, out, &observer)?.digest),
        None => writer.write(tree, out, &observer)?.digest,
    })
}

/// An output for runs that need only the digest.
struct Discarded;

impl std::io::Write for Discarded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl ImageOutput for Discarded {
    fn patch(&mut self, _offset: u64, _bytes: &[u8]) -> std::io::Result<()> {
        Ok(())
    }
}

/// Applies the options to the tree.
fn change(call: &MkComposefs, tree: &mut Tree) -> Result<()> {
    if call.use_epoch {
        let epoch = Timestamp {
            seconds: 0,
            nanoseconds: 0,
        };
        let times = Times {
            all: Some(epoch),
            latest: None,
        };
        times.apply(tree);
    }
    if call.user_xattrs {
        XattrFilter::new(Some("^user\\."), None)?.apply(tree);
    }
    if call.skip_devices {
        skip_devices(tree);
    }
    Ok(())
}

/// Removes devices. Whiteouts are devices too.
fn skip_devices(tree: &mut Tree) {
    let mut dirs = vec![Tree::ROOT];
    while let Some(dir) = dirs.pop() {
        let mut devices = Vec::new();
        for (name, node) in tree.children(dir) {
            match &tree.node(node).kind {
                NodeKind::Directory(_) => dirs.push(node),
                NodeKind::CharDevice(_) | NodeKind::BlockDevice(_) => devices.push(name.to_vec()),
                _ => {}
            }
        }
        for name in devices {
            tree.unlink(dir, &name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines() {
        let words = |line: &[&str]| line.iter().map(OsString::from).collect::<Vec<_>>();
        let call = parse(&words(&["--digest-store=s", "--print-digest", "d", "i"])).unwrap();
        assert_eq!(call.options.objects, Some("s".into()));
        assert!(call.print_digest && call.image == Some("i".into()));
        for (line, versions) in [
            (&["d", "i"][..], (0, 1)),
            (&["--min-version=0", "d", "i"], (0, 0)),
            (&["--max-version=1", "d", "i"], (0, 1)),
            (&["--min-version=1", "--max-version=0", "d", "i"], (1, 1)),
        ] {
            let options = parse(&words(line)).unwrap().options;
            let found = (options.min_version, options.max_version);
            assert_eq!(found, versions, "{line:?}");
        }
        for line in [
            &["d"][..],
            &[],
            &["d", "i", "x"],
            &["--print-digest-only", "d", "i"],
            &["--min-version=2", "d", "i"],
            &["--threads=x", "d", "i"],
        ] {
            assert!(parse(&words(line)).is_err(), "{line:?}");
        }
    }
}
