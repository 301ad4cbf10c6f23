//! The host directory as one side of a comparison. Symbolic links below it are not followed.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use forerun_vfs::{Device, FileType, Metadata, Timestamp};
use rustix::fs::OFlags;

use super::DiffOptions;
use super::compare::Xattrs;
use super::entry::{Choice, Entry, Id, choose};
use crate::ExportError;
use crate::select::join;

/// Collects all entries to compare, unordered.
pub fn entries(
    root: &Path,
    options: &DiffOptions,
    failures: &mut Vec<ExportError>,
) -> Result<Vec<Entry>, ExportError> {
    let failed = |source| ExportError::Target {
        path: root.into(),
        source,
    };
    // Links in the path to the root are followed: the user gave that path.
    let metadata = fs::metadata(root).map_err(failed)?;
    fs::read_dir(root).map_err(failed)?;
    let mut entries = Vec::new();
    if choose(b"", options) == Choice::Take {
        entries.push(entry(Vec::new(), &metadata, Vec::new()));
    }
    let mut pending = vec![Vec::new()];
    while let Some(dir) = pending.pop() {
        let read = directory(root, &dir, options, &mut entries, &mut pending, failures);
        if let Err(source) = read {
            failures.push(host_error(&dir, source));
        }
    }
    Ok(entries)
}

fn directory(
    root: &Path,
    dir: &[u8],
    options: &DiffOptions,
    entries: &mut Vec<Entry>,
    pending: &mut Vec<Vec<u8>>,
    failures: &mut Vec<ExportError>,
) -> io::Result<()> {
    for found in fs::read_dir(host_path(root, dir))? {
        let path = join(dir, found?.file_name().as_bytes());
        let choice = choose(&path, options);
        if choice == Choice::Skip {
            continue;
        }
        let host = host_path(root, &path);
        let looked = fs::symlink_metadata(&host).and_then(|metadata| {
            let target = if metadata.is_symlink() {
                fs::read_link(&host)?.into_os_string().into_vec()
            } else {
                Vec::new()
            };
            Ok((metadata, target))
        });
        let (metadata, target) = match looked {
            Ok(looked) => looked,
            Err(source) => {
                failures.push(host_error(&path, source));
                continue;
            }
        };
        if metadata.is_dir() {
            pending.push(path.clone());
        }
        if choice == Choice::Take {
            entries.push(entry(path, &metadata, target));
        }
    }
    Ok(())
}

fn entry(path: Vec<u8>, metadata: &fs::Metadata, target: Vec<u8>) -> Entry {
    let kind = kind(metadata);
    let is_device = matches!(kind, FileType::BlockDevice | FileType::CharDevice);
    let device = Device {
        major: rustix::fs::major(metadata.rdev()),
        minor: rustix::fs::minor(metadata.rdev()),
    };
    Entry {
        path,
        id: Id::Host(metadata.dev(), metadata.ino()),
        metadata: Metadata {
            kind,
            mode: u16::try_from(metadata.mode() & 0o7777).unwrap_or(0),
            uid: metadata.uid(),
            gid: metadata.gid(),
            size: metadata.len(),
            nlink: u32::try_from(metadata.nlink()).unwrap_or(u32::MAX),
            mtime: Timestamp {
                seconds: metadata.mtime(),
                nanoseconds: u32::try_from(metadata.mtime_nsec()).unwrap_or(0),
            },
            device: if is_device { device } else { Device::default() },
        },
        target,
        first: None,
    }
}

fn kind(metadata: &fs::Metadata) -> FileType {
    let kind = metadata.file_type();
    if kind.is_dir() {
        FileType::Directory
    } else if kind.is_file() {
        FileType::Regular
    } else if kind.is_symlink() {
        FileType::Symlink
    } else if kind.is_block_device() {
        FileType::BlockDevice
    } else if kind.is_char_device() {
        FileType::CharDevice
    } else if kind.is_fifo() {
        FileType::Fifo
    } else {
        FileType::Socket
    }
}

/// Opens a regular file for reading. Fails if it has been replaced by a link or a fifo in the
/// meantime.
pub fn open(root: &Path, path: &[u8]) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut options = File::options();
    options.read(true).custom_flags(flags.bits().cast_signed());
    options.open(host_path(root, path))
}

pub fn xattrs(root: &Path, entry: &Entry) -> Result<Xattrs, ExportError> {
    let path = host_path(root, &entry.path);
    let mut found = Xattrs::new();
    let mut read = || -> io::Result<()> {
        for name in xattr::list(&path)? {
            // Ignore attributes that have disappeared in the meantime.
            if let Some(value) = xattr::get(&path, &name)? {
                found.insert(name.into_vec(), value);
            }
        }
        Ok(())
    };
    match read() {
        // The filesystem does not support extended attributes.
        Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(Xattrs::new()),
        Err(error) => Err(host_error(&entry.path, error)),
        Ok(()) => Ok(found),
    }
}

pub fn host_error(path: &[u8], source: io::Error) -> ExportError {
    ExportError::Entry {
        path: path.to_vec(),
        action: "read",
        source,
    }
}

fn host_path(root: &Path, path: &[u8]) -> PathBuf {
    match path {
        b"" => root.into(),
        path => root.join(OsStr::from_bytes(path)),
    }
}
