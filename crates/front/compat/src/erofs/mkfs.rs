//! `mkfs.erofs`: makes EROFS images of directories and tar archives.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forerun::Writer;
use forerun::build::{
    DeviceWithData, ImageOptions, Owners, Patterns, ScanOptions, Times, Tree, overlay_whiteouts,
    scan, shift_owners, strip_whiteouts,
};
use forerun::vfs::{BlobId, Timestamp};
use forerun_sandbox::Sandbox;

use super::merge::Layers;
use super::mkfs_options::{MkErofs, parse};
use super::{tell, usage};
use crate::archive::Archive;
use crate::confine::{TREES, check_emulator};
use crate::context::Context;
use crate::error::{Failure, Result, reason};
use crate::exit::Exit;
use crate::interrupt;
use crate::options::{Manual, print};
use crate::target::Target;
use crate::{Commands, Start, archive_limits, begin, read_archive};

#[cfg(test)]
pub use super::mkfs_options::{EXTENDED, TABLE};

const DONE: u8 = 0;
const FAILED: u8 = 1;

const MANUAL: Manual<'_> = Manual {
    version: "mkfs.erofs 1.8",
    usage: usage::MKFS,
    mistake: FAILED,
};

/// Runs the program. Returns the exit status.
pub fn run(start: &Start<'_>) -> u8 {
    let call = match parse(&start.name.to_string_lossy(), start.words) {
        Ok(call) => call,
        Err(refusal) => return MANUAL.answer(refusal),
    };
    let context = begin();
    if !call.quiet {
        MANUAL.print_version();
    }
    match build(&context, start.commands, call) {
        Ok(Exit::Ok) => DONE,
        Ok(_) => FAILED,
        Err(failure) => {
            tell(&failure);
            FAILED
        }
    }
}

fn build(context: &Context, commands: &Commands, mut call: MkErofs) -> Result {
    check_emulator()?;
    let input = Input::open(context, &call)?;
    let output = match call.image.as_encoded_bytes() {
        b"-" => PathBuf::from("./-"),
        _ => PathBuf::from(&call.image),
    };
    interrupt::defer();
    let blob = call.blobdev.as_deref();
    let mut blob = blob
        .map(|path| Target::create(path, true, "file data"))
        .transpose()?;
    if let Some(target) = &mut blob {
        let file: io::Result<File> = target.file().try_clone();
        let file = file.map_err(|error| target.failed(&error))?;
        call.options.blob = Some(Arc::new(file));
    }
    let old = output.metadata().ok();
    let mut target = Target::create(&output, true, "an image")?;
    target.begin_at(call.offset)?;
    let new = target.file().metadata().ok();
    let ids = old.into_iter().chain(new);
    let skip = ids
        .map(|metadata| (metadata.dev(), metadata.ino()))
        .collect();
    let sandbox = Sandbox::new().write_below(forerun::build::spool_dir());
    let sandbox = match &input {
        Input::Archive(archive) => archive.with_index(sandbox),
        Input::Directory(source) => sandbox.read(source).keep(TREES),
        Input::Layers(layers) => layers.with_index(sandbox),
    };
    let targets = blob.iter().chain([&target]);
    context.confine(&targets.fold(sandbox, |sandbox, target| target.sandbox(sandbox)));
    let mut tree = read(context, &mut call, input, skip)?;
    change(&call, &mut tree)?;
    let writer = Writer::Erofs(call.options);
    let ended = (commands.make_image)(context, &writer, &mut tree, (target, blob), &output)?;
    if !call.quiet {
        print("Build completed.\n");
    }
    Ok(ended)
}

enum Input {
    Directory(PathBuf),
    Archive(Archive),
    Layers(Layers),
}

impl Input {
    fn open(context: &Context, call: &MkErofs) -> Result<Self> {
        let first = call.sources.first();
        let Some(source) = first.filter(|_| !call.tar) else {
            let archive = first.map_or(Path::new("-"), PathBuf::as_path);
            let archive = Archive::open(context, archive, archive_limits())?;
            return Ok(Self::Archive(archive));
        };
        if call.strips_whiteouts && source.is_file() {
            return Ok(Self::Layers(Layers::open(context, &call.sources)?));
        }
        check_source(source)?;
        match call.sources.get(1) {
            None => Ok(Self::Directory(source.clone())),
            Some(more) => {
                let message = format!("unexpected argument: {}", more.display());
                Err(Failure::usage(message))
            }
        }
    }
}

fn check_source(source: &Path) -> Result<()> {
    let metadata = source.metadata().map_err(|error| {
        let (number, why) = (error.raw_os_error().unwrap_or(0), reason(&error));
        let message = format!("failed to parse source directory: [Error {number}] {why}");
        Failure::new(Exit::Source, "io", message)
    })?;
    if metadata.is_dir() {
        Ok(())
    } else {
        let message = "root of the filesystem is not a directory";
        Err(Failure::new(Exit::Source, "io", message).of(source.display()))
    }
}

/// Reads everything except the contents of files. `skip` lists files by device and inode number.
fn read(
    context: &Context,
    call: &mut MkErofs,
    input: Input,
    skip: Vec<(u64, u64)>,
) -> Result<Tree> {
    let exclude = excluded(call);
    let of_image = |exclude| ImageOptions {
        exclude,
        xattrs: true,
        implied: None,
    };
    Ok(match input {
        Input::Archive(archive) => {
            let (tree, len) = read_archive(archive, &of_image(exclude))?;
            if call.only_index {
                call.options.devices = vec![DeviceWithData {
                    blob: BlobId::IMAGE,
                    tag: Vec::new(),
                    len,
                }];
            }
            tree
        }
        Input::Layers(layers) => {
            let (tree, devices) = layers.read(context, &of_image(exclude))?;
            call.options.block_size = devices.block_size;
            call.options.devices = devices.list;
            tree
        }
        Input::Directory(source) => {
            let options = ScanOptions {
                exclude,
                xattrs: call.options.xattrs,
                skip,
                ..ScanOptions::default()
            };
            scan(&source, &options)?
        }
    })
}

/// Returns the patterns of excluded paths.
fn excluded(call: &MkErofs) -> Patterns {
    if call.exclude_paths.is_empty() && call.exclude_regexes.is_empty() {
        return Patterns::default();
    }
    let (paths, regexes) = (call.exclude_paths.clone(), call.exclude_regexes.clone());
    Patterns::from_rule(move |path| {
        paths.iter().any(|exact| exact == path) || regexes.iter().any(|regex| regex.is_match(path))
    })
}

/// Applies the options to the tree.
fn change(call: &MkErofs, tree: &mut Tree) -> Result<()> {
    if call.aufs {
        overlay_whiteouts(tree)?;
    }
    if call.strips_whiteouts {
        strip_whiteouts(tree);
    }
    if call.separates_links {
        tree.separate_links();
    }
    let owners = Owners {
        uid: call.uid,
        gid: call.gid,
        ..Owners::default()
    };
    owners.apply(tree);
    if !shift_owners(tree, call.uid_offset, call.gid_offset) {
        let message = "an owner with the offset is above 4294967295";
        return Err(Failure::usage(message));
    }
    let epoch = crate::values::source_date_epoch()?;
    let at = |seconds| Timestamp {
        seconds,
        nanoseconds: 0,
    };
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
    let times = Times {
        all: match (call.time, call.ignores_times) {
            (Some(time), _) => Some(time),
            (None, true) => Some(at(epoch.unwrap_or(now))),
            (None, false) => None,
        },
        latest: epoch.filter(|_| call.time.is_none()).map(at),
    };
    times.apply(tree);
    Ok(())
}
