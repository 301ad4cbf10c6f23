//! Excludes of `mksquashfs`: files by name, and patterns.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use forerun::build::Patterns;

use super::call::MakeCall;
use super::{MakeEnded, stop};
use crate::path_list;
use crate::pattern::{PathExcludes, Syntax};

/// Excluded entries.
#[derive(Default)]
pub struct Excluded {
    pub patterns: Patterns,
    /// Files by device and inode number.
    pub files: Vec<(u64, u64)>,
}

impl Excluded {
    /// Reads the exclude lists, and finds the files that they name.
    pub fn new(call: &MakeCall) -> MakeEnded<Self> {
        let mut paths = call.excludes.clone();
        for file in &call.exclude_files {
            paths.extend(path_list(file, "exclude").map_err(super::MakeStop::Message)?);
        }
        let syntax = match (call.wildcards, call.regex) {
            (true, _) => Syntax::Shell,
            (false, true) => Syntax::Regex,
            (false, false) => Syntax::Names,
        };
        let mut excluded = if syntax == Syntax::Names && !call.tar {
            Self {
                files: paths
                    .iter()
                    .flat_map(|path| identities(call, path))
                    .collect(),
                ..Self::default()
            }
        } else {
            Self::of_patterns(&paths, syntax)?
        };
        if let Some(max_depth) = call.max_depth {
            let patterns = excluded.patterns;
            excluded.patterns = Patterns::from_rule(move |path| {
                path.split(|byte| *byte == b'/').count() > max_depth || patterns.matches(path)
            });
        }
        Ok(excluded)
    }

    fn of_patterns(paths: &[Vec<u8>], syntax: Syntax) -> MakeEnded<Self> {
        if paths.is_empty() {
            return Ok(Self::default());
        }
        let is_elsewhere = |path: &Vec<u8>| is_of_process(path);
        if syntax != Syntax::Names && paths.iter().any(is_elsewhere) {
            return stop(
                "FATAL ERROR: /, ./ and ../ prefixed excludes not supported with -wildcards or -regex options",
            );
        }
        let excludes = match PathExcludes::new(paths, syntax) {
            Ok(excludes) => excludes,
            Err(message) => return stop(format!("FATAL ERROR: {message}")),
        };
        Ok(Self {
            patterns: Patterns::from_rule(move |path| excludes.match_path(path)),
            files: Vec::new(),
        })
    }
}

/// Returns whether a path is relative to the root or the working directory, not to a source.
pub fn is_of_process(path: &[u8]) -> bool {
    let starts: [&[u8]; 3] = [b"/", b"./", b"../"];
    starts.iter().any(|start| path.starts_with(start))
}

/// Returns the host paths that a path of the command line may mean.
pub fn places(call: &MakeCall, path: &[u8]) -> Vec<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    let path = Path::new(std::ffi::OsStr::from_bytes(path));
    if is_of_process(path.as_os_str().as_bytes()) {
        vec![path.to_path_buf()]
    } else {
        let sources = call.sources.iter();
        sources.map(|source| Path::new(source).join(path)).collect()
    }
}

fn identities(call: &MakeCall, path: &[u8]) -> Vec<(u64, u64)> {
    let places = places(call, path).into_iter();
    let found = places.filter_map(|place| place.symlink_metadata().ok());
    found
        .map(|metadata| (metadata.dev(), metadata.ino()))
        .collect()
}

/// Returns whether a SquashFS image begins at the offset.
pub fn is_squashfs(path: &Path, offset: u64) -> bool {
    let mut magic = [0; 4];
    let read = File::open(path).and_then(|file| file.read_exact_at(&mut magic, offset));
    read.is_ok() && matches!(&magic, b"hsqs" | b"sqsh")
}
