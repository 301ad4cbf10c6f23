//! Inputs of an image: a directory, a tar archive or manifests. Manifests may also be applied on
//! top of a directory or archive.

use std::path::{Path, PathBuf};

use forerun::Limits;
use forerun::build::{
    BuildError, ImageOptions, OtherFilesystems, Patterns, ScanOptions, Tree, apply_manifest,
    drop_unreadable, scan, scan_readable,
};
use forerun::unstable::DiskImage;
use forerun::unstable::remote::Reference;

use crate::archive::Archive;
use crate::args::{LimitArgs, is_stdin};
use crate::context::Context;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::size::counted;
use crate::stdin::input_name;

pub struct Reading<'r> {
    /// Entries of a directory or archive to omit. Entries that a manifest names are kept.
    pub exclude: Patterns,
    pub xattrs: bool,
    /// Whether directories on other filesystems are stored empty.
    pub one_file_system: bool,
    /// Files to omit, by device and inode number.
    pub skip: Vec<(u64, u64)>,
    pub limits: Limits,
    /// Whether to omit files of a directory that cannot be read.
    pub skip_unreadable: bool,
    /// Manifests to apply after the input, in this order.
    pub manifests: &'r [PathBuf],
}

/// The input of a tree. An archive is open.
pub enum Input {
    Directory(PathBuf),
    Archive(Box<Archive>),
}

/// Files and directories that cannot be read and are omitted.
#[derive(Default)]
pub struct Skipped {
    count: u64,
    /// Members of an archive that are no part of the tree.
    left_out: u64,
    first: Vec<Failure>,
    /// How often writing the image was restarted.
    restarts: u32,
}

impl Skipped {
    /// Largest number of listed failures; more are only counted.
    const LISTED: usize = 100;
    /// Largest number of restarts. If files disappear faster than they are read, the image cannot
    /// be made.
    const RESTARTS: u32 = 3;

    pub fn add(&mut self, error: BuildError) {
        self.count += 1;
        if self.first.len() < Self::LISTED {
            let mut failure = Failure::from(error);
            failure.exit = Exit::Partial;
            self.first.push(failure);
        }
    }

    /// Removes files from the tree that disappeared after the input was read. Returns the number of
    /// removed names, or `None` if the image need not be restarted.
    pub fn drop_gone(&mut self, tree: &mut Tree) -> Option<u64> {
        if self.restarts == Self::RESTARTS {
            return None;
        }
        self.restarts += 1;
        let names = drop_unreadable(tree, &mut |error| self.add(error));
        (names > 0).then_some(names)
    }

    /// Reports the omitted files. Returns the exit code.
    pub fn tell(self, context: &Context, input: &str) -> Exit {
        let exit = context.left_out(input, self.left_out);
        if self.count == 0 {
            return exit;
        }
        context.report_all(self.first);
        let what = counted(
            self.count,
            "file or directory is left out, as it",
            "files and directories are left out, as they",
        );
        let message = format!("{what} cannot be read");
        context.report(&Failure::new(Exit::Partial, "unreadable", message).of(input))
    }
}

/// Opens an archive, or checks that a directory exists.
pub fn open(context: &Context, input: &Path, limits: LimitArgs) -> Result<Input> {
    let is_remote = input.to_str().is_some_and(Reference::is_remote);
    if (is_remote || DiskImage::parse(input).is_some()) && input.symlink_metadata().is_err() {
        let what = "pack takes a directory, a tar archive or a manifest, and this is an image";
        return Err(Failure::usage(what)
            .of(input_name(input))
            .hint("forerun convert makes an image of another one, with the same options"));
    }
    Ok(if is_dir(input)? {
        Input::Directory(input.to_path_buf())
    } else {
        Input::Archive(Box::new(Archive::open(context, input, limits)?))
    })
}

/// Reads the whole tree except the contents of files.
pub fn read(
    context: &Context,
    input: Option<Input>,
    reading: Reading<'_>,
) -> Result<(Tree, Skipped)> {
    let Reading {
        exclude,
        xattrs,
        one_file_system,
        skip,
        limits,
        skip_unreadable,
        manifests,
    } = reading;
    let mut skipped = Skipped::default();
    let mut tree = match input {
        None => Tree::default(),
        Some(Input::Directory(input)) => {
            let options = ScanOptions {
                exclude,
                xattrs,
                skip,
                latest: None,
                other_filesystems: if one_file_system {
                    OtherFilesystems::Empty
                } else {
                    OtherFilesystems::Taken
                },
            };
            if skip_unreadable {
                scan_readable(&input, &options, &mut |error| skipped.add(error))?
            } else {
                scan(&input, &options)?
            }
        }
        Some(Input::Archive(archive)) => {
            let options = ImageOptions {
                exclude,
                xattrs,
                implied: None,
            };
            let (tree, info) = archive.read(context, &options)?;
            skipped.left_out = info.left_out;
            tree
        }
    };
    for manifest in manifests {
        let path = if is_stdin(manifest) {
            Path::new("/dev/stdin")
        } else {
            manifest
        };
        apply_manifest(&mut tree, path, &limits)?;
    }
    Ok((tree, skipped))
}

fn is_dir(input: &Path) -> Result<bool> {
    if is_stdin(input) {
        return Ok(false);
    }
    match input.metadata() {
        Ok(metadata) => Ok(metadata.is_dir()),
        Err(error) => Err(Failure::source(&error).of(input.display())),
    }
}
