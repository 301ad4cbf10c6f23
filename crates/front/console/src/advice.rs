//! Turns errors of the libraries into advice for the user: the exit code, and what to try.

use std::io;

use forerun::build::BuildError;
use forerun::unstable::locks::InUse;
use forerun::unstable::remote::RemoteError;
use forerun::unstable::repair::{UndoError, UndoFailed};
use forerun::vfs::{BlobName, Bound, Error};
use forerun_export::ExportError;
use forerun_io::causes;
use rustix::io::Errno;

use crate::error::{Failure, without_errno};
use crate::escape::escape;
use crate::exit::Exit;
use crate::remote;

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        if let Some(failed) = UndoFailed::of(&error) {
            let message = without_errno(&failed.to_string());
            let failure = Self::new(Exit::Output, "undo_file", message);
            return failure
                .hint("--undo-file FILE makes it elsewhere, --undo-file none makes none");
        }
        let (exit, hint) = advice(&error);
        let message = match &error {
            // The image was not opened, so the position of a read has no meaning.
            Error::Io { len: 0, source, .. } => source.to_string(),
            _ => error.to_string(),
        };
        Self::new(exit, error.kind(), without_errno(&message)).maybe_hint(hint)
    }
}

impl From<BuildError> for Failure {
    fn from(error: BuildError) -> Self {
        let (exit, kind, hint) = match &error {
            BuildError::Output { source, .. } => return Self::output_at(source, &error),
            BuildError::Image { path, source } => {
                return Self::from(source.clone()).at(&absolute(path));
            }
            BuildError::Pattern { .. } => (
                Exit::Usage,
                "pattern",
                Some("quote patterns so that the shell leaves them alone"),
            ),
            BuildError::Format { .. } => (
                Exit::Format,
                "does_not_fit",
                Some("leave something out with --exclude, or choose another format"),
            ),
            BuildError::Memory { .. } => (
                Exit::Usage,
                "memory",
                Some("smaller blocks, clusters or dictionaries take less memory"),
            ),
            _ => (Exit::Source, "input", None),
        };
        Self::new(exit, kind, without_errno(&error.to_string())).maybe_hint(hint)
    }
}

impl From<ExportError> for Failure {
    fn from(error: ExportError) -> Self {
        match error {
            ExportError::Image { path, source } => Self::from(source).at(&absolute(&path)),
            ExportError::Target { path, source } => match source.kind() {
                io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
                    Self::new(Exit::Output, "output", "is not a directory").of(path.display())
                }
                _ => Self::output(&source).of(path.display()),
            },
            ExportError::Sync { path, source } => {
                let failure = Self::output(&source).of(path.display());
                let message = format!("some of it may not be on disk: {}", failure.message);
                Self { message, ..failure }
            }
            ExportError::Entry {
                path,
                action,
                source,
            } => {
                let failure = Self::output(&source).at(&absolute(&path));
                let message = format!("cannot {action}: {}", failure.message);
                let failure = Self { message, ..failure };
                match source.kind() {
                    io::ErrorKind::AlreadyExists => failure.hint("--force replaces it"),
                    _ => failure,
                }
            }
            ExportError::Link {
                path,
                first,
                reason,
            } => {
                let first = escape(&absolute(&first));
                let message = format!("cannot make the hard link: its other name {first} {reason}");
                Self::new(Exit::Partial, "hard_link", message).at(&absolute(&path))
            }
            ExportError::LeftOut { path, reason } => {
                let failure = Self::new(Exit::Partial, "left_out", format!("left out: {reason}"));
                failure.at(&absolute(&path))
            }
            ExportError::Pattern(error) => error.into(),
            ExportError::Output(source) => Self::output(&source),
            ExportError::Limit { count, limit, .. } => {
                let message = format!("{count} bytes to be written exceed the limit of {limit}");
                let failure = Self::new(Exit::Image, "limit", message);
                failure
                    .hint("if you trust the image, raise the limit with --limit total-bytes=BYTES")
            }
            // The enum may grow; for a new kind, only its text is known.
            error => Self::new(Exit::Partial, "export", without_errno(&error.to_string())),
        }
    }
}

impl From<UndoError> for Failure {
    fn from(error: UndoError) -> Self {
        let (exit, kind) = match &error {
            UndoError::NotUndo | UndoError::Version(_) => (Exit::Format, "undo_file"),
            UndoError::Read(_) | UndoError::Volume { .. } => (Exit::Source, "io"),
            UndoError::Write { .. } => (Exit::Output, "output"),
            UndoError::OtherVolume | UndoError::Changed { .. } => (Exit::Image, "changed"),
            // The enum may grow; a new kind counts as an error of the undo file until it is listed
            // here.
            _ => (Exit::Image, "undo_file"),
        };
        let hint = error.is_of_volume().then_some(
            "nothing was written; --force restores the undo file anyway, and overwrites later changes",
        );
        Self::new(exit, kind, without_errno(&error.to_string())).maybe_hint(hint)
    }
}

/// Returns a path from the root. The libraries' paths have no leading slash, but users expect one.
pub fn absolute(path: &[u8]) -> Vec<u8> {
    match path {
        [b'/', ..] => path.to_vec(),
        _ => [b"/", path].concat(),
    }
}

impl Failure {
    fn output_at(source: &io::Error, error: &BuildError) -> Self {
        let failure = Self::output(source);
        let message = without_errno(&error.to_string());
        Self { message, ..failure }
    }
}

/// Returns the exit code of a library error, and a hint.
fn advice(error: &Error) -> (Exit, Option<&'static str>) {
    match error {
        Error::NotFound => (Exit::Image, Some("forerun ls -R IMAGE lists every path")),
        Error::IsADirectory => (
            Exit::Image,
            Some("forerun ls lists a directory, forerun extract copies it"),
        ),
        Error::NotADirectory | Error::NotASymlink | Error::NotAFile | Error::StaleNode(_) => {
            (Exit::Image, None)
        }
        Error::SymlinkLoop => (
            Exit::Image,
            Some("forerun ls -l shows where each link points"),
        ),
        Error::DirectoryLoop { .. } | Error::Corrupt(_) => (
            Exit::Image,
            Some("forerun check IMAGE lists everything that is wrong"),
        ),
        Error::Limit { bound, .. } => (Exit::Image, raised(*bound)),
        Error::Spool { .. } => (
            Exit::Source,
            Some("set TMPDIR to a directory with room for the whole archive, decompressed"),
        ),
        Error::Unsupported(_) => (Exit::Format, None),
        Error::UnknownFormat { .. } => (Exit::Format, None),
        Error::Blob {
            name: BlobName::Device { .. },
            source,
        } if source.kind() == io::ErrorKind::NotFound => (
            Exit::Source,
            Some("name the files of all devices in order: --device FIRST --device SECOND"),
        ),
        Error::Blob {
            name: BlobName::Object { .. },
            source,
        } if source.kind() == io::ErrorKind::NotFound => (
            Exit::Source,
            Some("name the directory that has the objects: --objects DIR"),
        ),
        Error::Blob { .. } => (Exit::Source, None),
        // Nothing was read: the image could not be opened or is in use.
        Error::Io { len: 0, .. } => (
            Exit::Source,
            match InUse::of(error) {
                Some(in_use) => in_use.hint(),
                None => RemoteError::within(error).and_then(remote::hint),
            },
        ),
        Error::Io { source, .. } => (Exit::Source, of_read(error, source)),
        // The enum may grow; a new kind counts as an error of the image until it is listed here.
        _ => (Exit::Image, None),
    }
}

/// Returns advice on a failed read from a server, file or device.
fn of_read(error: &Error, source: &io::Error) -> Option<&'static str> {
    if source.kind() == io::ErrorKind::TimedOut {
        return Some(remote::SLOW);
    }
    if let Some(error) = RemoteError::within(error) {
        return remote::hint(error);
    }
    if source.kind() == io::ErrorKind::UnexpectedEof {
        return Some("the image is shorter than it says: copy it again");
    }
    let causes = causes(error).filter_map(|cause| cause.downcast_ref::<io::Error>());
    let mut numbers = causes.filter_map(Errno::from_io_error);
    let is_failing = |errno: Errno| {
        matches!(
            errno,
            Errno::IO | Errno::NODATA | Errno::REMOTEIO | Errno::ILSEQ
        )
    };
    numbers
        .any(is_failing)
        .then_some("the file or device cannot be read there; other parts can still be read")
}

/// Returns the advice to raise a limit, if an option can.
const fn raised(bound: Bound) -> Option<&'static str> {
    Some(match bound {
        Bound::WalkMemory => {
            "if you trust the image, raise the limit with --limit walk-memory=BYTES"
        }
        Bound::TotalBytes => {
            "if you trust the image, raise the limit with --limit total-bytes=BYTES"
        }
        Bound::Depth => "if you trust the image, raise the limit with --limit depth=N",
        Bound::Entries => "if you trust the image, raise the limit with --limit entries=N",
        Bound::StreamBytes => {
            "if you trust the archive, raise the limit with --limit decoded=BYTES"
        }
        Bound::DecoderMemory => {
            "decompress it first, with zstd -d --long=31 or xz -d, and open what that writes"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_error_of_the_device_is_said_to_be_one() {
        let failing =
            Some("the file or device cannot be read there; other parts can still be read");
        let at_server = |error: RemoteError| io::Error::other(error);
        let place = || "https://h/x".to_string();
        let device = || io::Error::from_raw_os_error(5);
        for (source, expected) in [
            (device(), failing),
            (io::Error::other(device()), failing),
            (io::Error::other(std::sync::Arc::new(device())), failing),
            (io::Error::other("a window of 2 GiB"), None),
            (io::ErrorKind::TimedOut.into(), Some(remote::SLOW)),
            (
                at_server(RemoteError::Timeout {
                    place: place(),
                    seconds: 30.0,
                }),
                Some(remote::SLOW),
            ),
            (
                at_server(RemoteError::Cache {
                    reason: "No space left on device".into(),
                    is_full: true,
                }),
                Some(
                    "free space with forerun cache gc --to BYTES, or use another directory: --cache-dir DIR",
                ),
            ),
        ] {
            let text = source.to_string();
            let failure = Failure::from(Error::io(512, 100, source));
            assert_eq!(failure.hint.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn a_failed_source_is_told_from_a_damaged_image() {
        let error = Error::io(512, 100, io::Error::from_raw_os_error(5));
        let failure = Failure::from(error);
        assert_eq!((failure.exit, failure.kind), (Exit::Source, "io"));
        assert_eq!(
            failure.message,
            "reading 100 bytes at offset 0x200: Input/output error"
        );
    }

    #[test]
    fn paths_get_one_slash() {
        assert_eq!(absolute(b""), b"/");
        assert_eq!(absolute(b"a/b"), b"/a/b");
        assert_eq!(absolute(b"/a"), b"/a");
    }
}
