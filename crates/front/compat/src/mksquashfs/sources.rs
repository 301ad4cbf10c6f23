//! The sources of an image, and the tree that they form.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use forerun::Limits;
use forerun::build::{
    BuildError, ImageOptions, NamedSource, Patterns, PseudoDefinitions, PseudoRules, ScanOptions,
    Tree, scan, scan_readable, scan_sources,
};
use forerun::vfs::Timestamp;
use forerun_sandbox::Sandbox;

use super::call::{Definition, MakeCall};
use super::changes::{self, MakeTimes};
use super::exclude::Excluded;
use super::{MakeEnded, MakeStop, stop};
use crate::archive::Archive;
use crate::confine::{TREES, directory_of};
use crate::error::{Failure, reason};
use crate::{archive_limits, complain, read_archive};

/// The permissions of a root directory that is not one of the sources.
const ROOT_MODE: u16 = 0o777;

/// Marks directories without their own time.
const UNSET: Timestamp = Timestamp {
    seconds: i64::MIN,
    nanoseconds: 0,
};

/// The message about an empty archive.
const TRUNCATED: &str =
    "Unexpected EOF (end of file), the tarfile appears to be truncated or corrupted
FATAL ERROR: Error occurred reading tar file.  Aborting";

/// The sources of an image.
pub enum MakeSources {
    /// A tar archive on standard input.
    Archive,
    Definitions,
    /// A directory, which becomes the root of the image.
    Root(PathBuf),
    /// Files and directories in the root.
    Several(Vec<NamedSource>),
}

impl MakeSources {
    /// Examines the sources, and gives each a unique name.
    pub fn new(call: &MakeCall) -> MakeEnded<Self> {
        if call.tar {
            return Ok(Self::Archive);
        }
        if call.sources.iter().all(|source| source == "-") {
            return if call.definitions.iter().any(makes_root) {
                Ok(Self::Definitions)
            } else {
                stop(
                    "Source is \"-\", but no pseudo definition for \"/\"\nDid you forget to specify -cpiostyle or -tar?",
                )
            };
        }
        let mut named = Vec::new();
        let mut taken = HashSet::new();
        let mut is_dir = false;
        for source in &call.sources {
            let path = PathBuf::from(source);
            let metadata = path.symlink_metadata();
            let metadata = metadata.map_err(|error| {
                let (shown, why) = (path.display(), reason(&error));
                MakeStop::Message(format!(
                    "Cannot stat source directory \"{shown}\" because {why}"
                ))
            })?;
            is_dir = metadata.is_dir();
            let name = free_name(base_name(&path)?, &mut taken);
            named.push(NamedSource { path, name });
        }
        match named.as_slice() {
            [only] if is_dir && !call.keep_directory => Ok(Self::Root(only.path.clone())),
            _ => Ok(Self::Several(named)),
        }
    }

    /// Returns the path in the tree of a host file.
    pub fn in_tree(&self, file: &Path) -> Option<Vec<u8>> {
        let file = std::path::absolute(file).ok()?;
        let below = |source: &Path| {
            let source = std::path::absolute(source).ok()?;
            Some(file.strip_prefix(&source).ok()?.to_path_buf())
        };
        match self {
            Self::Archive | Self::Definitions => None,
            Self::Root(source) => Some(below(source)?.as_os_str().as_bytes().to_vec()),
            Self::Several(sources) => sources.iter().find_map(|source| {
                let name = Path::new(std::ffi::OsStr::from_bytes(&source.name));
                let path = match below(&source.path)? {
                    rest if rest.as_os_str().is_empty() => name.to_path_buf(),
                    rest => name.join(rest),
                };
                Some(path.into_os_string().as_bytes().to_vec())
            }),
        }
    }

    /// Returns the sandbox that permits reading the sources.
    pub fn sandbox(&self, call: &MakeCall) -> Sandbox {
        let sandbox = Sandbox::new().write_below(forerun::build::spool_dir());
        let sandbox = match self {
            Self::Archive => sandbox,
            Self::Definitions => sandbox.keep(TREES),
            Self::Root(path) => sandbox.read(path).keep(TREES),
            Self::Several(sources) => {
                let sandbox = sandbox.keep(TREES);
                sources.iter().fold(sandbox, |sandbox, source| {
                    match source.path.symlink_metadata() {
                        Ok(metadata) if metadata.is_dir() => sandbox.read(&source.path),
                        _ => sandbox.read(directory_of(&source.path)),
                    }
                })
            }
        };
        if call.definitions.is_empty() {
            sandbox
        } else {
            sandbox.all_files("a definition names files")
        }
    }

    /// Reads everything except the contents of files.
    pub fn read(
        &self,
        call: &MakeCall,
        excluded: Excluded,
        mut skip: Vec<(u64, u64)>,
        times: &MakeTimes,
    ) -> MakeEnded<Tree> {
        skip.extend(excluded.files);
        let options = ScanOptions {
            exclude: excluded.patterns,
            xattrs: call.xattrs,
            skip,
            latest: None,
            other_filesystems: call.other_filesystems,
        };
        let mut told = |error: BuildError| ignore(&Failure::from(error));
        let mut tree = match self {
            Self::Archive => archive(options.exclude, UNSET)?,
            Self::Definitions => Tree::default(),
            Self::Root(path) if call.exit_on_error => scan(path, &options)?,
            Self::Root(path) => scan_readable(path, &options, &mut told)?,
            Self::Several(sources) if call.exit_on_error => scan_sources(sources, &options, None)?,
            Self::Several(sources) => scan_sources(sources, &options, Some(&mut told))?,
        };
        if !matches!(self, Self::Root(_)) {
            let root = tree.node_mut(Tree::ROOT);
            (root.mode, root.mtime) = (ROOT_MODE, UNSET);
            root.uid = rustix::process::geteuid().as_raw();
            root.gid = rustix::process::getegid().as_raw();
            root.xattrs.clear();
        }
        let unset = times.unset(&tree);
        for node in tree.nodes_mut() {
            if node.mtime == UNSET {
                node.mtime = unset;
            }
        }
        changes::begin(call, &mut tree)?;
        self.define(call, &mut tree, unset)?;
        Ok(tree)
    }

    /// Applies the definitions of `-p` and `-pf`.
    fn define(&self, call: &MakeCall, tree: &mut Tree, now: Timestamp) -> MakeEnded<()> {
        let limits = Limits::default();
        let rules = PseudoRules {
            now,
            makes_root: matches!(self, Self::Definitions),
            source: match self {
                Self::Root(path) => path,
                _ => Path::new(""),
            },
            limits: &limits,
            told: &mut |message: String| complain(&message),
        };
        let mut definitions = PseudoDefinitions::new(tree, rules);
        for definition in &call.definitions {
            match definition {
                Definition::Line(line) => {
                    if let Err(error) = definitions.line(line)? {
                        let line = String::from_utf8_lossy(line);
                        return stop(format!(
                            "Not enough or invalid arguments in pseudo file definition \"{line}\"\n{error}"
                        ));
                    }
                }
                Definition::MissingDirectories(attributes) => {
                    if let Err(error) = definitions.missing_directories(attributes) {
                        let attributes = String::from_utf8_lossy(attributes);
                        return stop(format!(
                            "Invalid pseudo dir definition \"{attributes}\"\n{error}"
                        ));
                    }
                }
                Definition::File(file) => {
                    let file = match file.as_bytes() {
                        b"-" => Path::new("/dev/stdin"),
                        _ => Path::new(file),
                    };
                    let applied = definitions.file(file);
                    applied.map_err(|error| match error {
                        BuildError::Host { path, source } if path == file => {
                            let (shown, why) = (path.display(), reason(&source));
                            MakeStop::Message(format!(
                                "Could not open pseudo device file \"{shown}\" because {why}"
                            ))
                        }
                        error => error.into(),
                    })?;
                }
            }
        }
        Ok(definitions.finish()?)
    }
}

/// Reports a file that is skipped.
pub fn ignore(failure: &Failure) {
    let text = crate::in_one_line(failure);
    complain(&format!("Failed to read {text}, leaving it out"));
}

fn archive(exclude: Patterns, now: Timestamp) -> MakeEnded<Tree> {
    let failed = |failure: Failure| {
        let text = crate::in_one_line(&failure);
        MakeStop::Message(format!(
            "{text}\nFATAL ERROR: Error occurred reading tar file.  Aborting"
        ))
    };
    let archive = Archive::open(&crate::quiet(), Path::new("-"), archive_limits());
    let archive = archive.map_err(failed)?;
    if archive.is_empty() {
        return stop(TRUNCATED);
    }
    let options = ImageOptions {
        exclude,
        xattrs: true,
        implied: Some(now),
    };
    let read = read_archive(archive, &options).map_err(failed)?;
    Ok(read.0)
}

fn makes_root(definition: &Definition) -> bool {
    match definition {
        // The file is read later. If it does not create a root, the root has the attributes of a
        // new directory.
        Definition::File(_) => true,
        Definition::Line(line) => {
            let mut words = line.split(u8::is_ascii_whitespace);
            words.next() == Some(b"/") && matches!(words.next(), Some(b"d" | b"D"))
        }
        Definition::MissingDirectories(_) => false,
    }
}

/// Returns the last name of a path; that of the directory if the path ends with `.` or `..`.
fn base_name(path: &Path) -> MakeEnded<Vec<u8>> {
    if let Some(name) = path.file_name().filter(|_| !ends_with_dot(path)) {
        return Ok(name.as_bytes().to_vec());
    }
    let whole = path.canonicalize();
    let whole = whole.map_err(|error| Failure::source(&error).of(path.display()))?;
    // The root of the system has no name. It can only be the single source.
    let name = whole.file_name().map(OsStrExt::as_bytes);
    Ok(name.unwrap_or(b"root").to_vec())
}

fn ends_with_dot(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    let last = bytes.trim_ascii_end().rsplit(|byte| *byte == b'/').next();
    last == Some(b".")
}

/// Returns the name, with a number appended if it is in use.
fn free_name(name: Vec<u8>, taken: &mut HashSet<Vec<u8>>) -> Vec<u8> {
    let mut free = name.clone();
    let mut number = 0_u64;
    while !taken.insert(free.clone()) {
        number += 1;
        let next = [name.as_slice(), format!("_{number}").as_bytes()].concat();
        let shown = [&free, &next].map(|name| String::from_utf8_lossy(name).into_owned());
        complain(&format!(
            "Source directory entry {} already used! - trying {}",
            shown[0], shown[1]
        ));
        free = next;
    }
    free
}
