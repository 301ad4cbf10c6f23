//! Maps errors to errno.
//!
//! A damaged image and a failing source both become `EIO`, which programs know how to report. The
//! log has the details.

use std::error::Error as StdError;
use std::io::{self, ErrorKind};
use std::sync::Arc;

use forerun::Cause;
use forerun_vfs::{Error, is_for_want_of_room};
use fuser::Errno;

pub fn errno(error: &Error) -> Errno {
    match error {
        Error::NotFound => Errno::ENOENT,
        Error::NotADirectory => Errno::ENOTDIR,
        Error::IsADirectory => Errno::EISDIR,
        Error::NotASymlink | Error::NotAFile | Error::UnknownFormat { .. } => Errno::EINVAL,
        Error::SymlinkLoop | Error::DirectoryLoop { .. } => Errno::ELOOP,
        Error::StaleNode(_) => Errno::ESTALE,
        Error::Unsupported(_) => Errno::EOPNOTSUPP,
        Error::Exists => Errno::EEXIST,
        Error::NotEmpty => Errno::ENOTEMPTY,
        Error::IntoItself | Error::InvalidName(_) => Errno::EINVAL,
        Error::NameTooLong { .. } => Errno::ENAMETOOLONG,
        Error::NoSpace => Errno::ENOSPC,
        Error::TooLarge => Errno::EFBIG,
        Error::ReadOnly(_) => Errno::EROFS,
        Error::Write { source, .. } if is_for_want_of_room(source) => Errno::ENOSPC,
        Error::Write { .. } => Errno::EIO,
        // Ordinary images do not reach a limit.
        Error::Limit { .. }
        | Error::Corrupt(_)
        | Error::Blob { .. }
        | Error::Spool { .. }
        | Error::Io { .. } => Errno::EIO,
        // The enum is non-exhaustive: a new error counts as one of the image.
        _ => Errno::EIO,
    }
}

/// Returns the errno of the first error in the chain of causes that has one. For callers that need
/// errno, as in C and Python.
#[must_use]
pub fn errno_of(error: &(dyn StdError + 'static)) -> i32 {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(errno) = known(error) {
            return errno.code();
        }
        next = error.source();
    }
    Errno::EIO.code()
}

/// Returns the errno of this error, ignoring its causes.
fn known(error: &(dyn StdError + 'static)) -> Option<Errno> {
    if let Some(error) = error.downcast_ref::<forerun::Error>() {
        return Some(match error.cause() {
            Cause::Image(error) => errno(error),
            Cause::Open(source) => of_io(source),
            _ => of_kind(error.kind()),
        });
    }
    if let Some(error) = error.downcast_ref::<Error>() {
        return Some(errno(error));
    }
    if let Some(source) = error.downcast_ref::<Arc<io::Error>>() {
        return Some(of_io(source));
    }
    error.downcast_ref::<io::Error>().map(of_io)
}

/// Returns the errno of an I/O error, or of the error that it wraps.
fn of_io(error: &io::Error) -> Errno {
    if let Some(code) = error.raw_os_error() {
        return Errno::from_i32(code);
    }
    match error.get_ref().and_then(|inner| known(inner)) {
        Some(errno) => errno,
        None => of_kind(error.kind()),
    }
}

fn of_kind(kind: ErrorKind) -> Errno {
    match kind {
        ErrorKind::NotFound => Errno::ENOENT,
        ErrorKind::PermissionDenied => Errno::EACCES,
        ErrorKind::AlreadyExists => Errno::EEXIST,
        ErrorKind::NotADirectory => Errno::ENOTDIR,
        ErrorKind::IsADirectory => Errno::EISDIR,
        ErrorKind::InvalidInput => Errno::EINVAL,
        ErrorKind::Unsupported => Errno::EOPNOTSUPP,
        ErrorKind::ResourceBusy => Errno::EBUSY,
        ErrorKind::TimedOut => Errno::ETIMEDOUT,
        ErrorKind::NetworkUnreachable => Errno::ENETUNREACH,
        ErrorKind::StorageFull => Errno::ENOSPC,
        _ => Errno::EIO,
    }
}

/// Returns whether to log `error`: the caller is not at fault, and errno does not identify the
/// problem.
pub fn worth_logging(error: &Error) -> bool {
    matches!(
        errno(error),
        Errno::EIO | Errno::EOPNOTSUPP | Errno::ELOOP | Errno::ESTALE
    )
}

#[cfg(test)]
mod tests {
    use std::io;

    use forerun_vfs::{BlobName, Corrupt, NodeId};

    use forerun_vfs::Bound;

    use super::*;

    /// An error, its kind, its errno, and whether it is logged.
    type Row = (Error, &'static str, Errno, bool);

    #[track_caller]
    fn assert_rows<const N: usize>(rows: [Row; N]) {
        for (error, kind, expected, logged) in rows {
            assert_eq!(error.kind(), kind);
            assert_eq!(errno(&error).code(), expected.code(), "{error}");
            assert_eq!(worth_logging(&error), logged, "{error}");
        }
    }

    #[test]
    fn the_first_cause_that_has_an_errno_gives_it() {
        let unreadable = io::Error::from_raw_os_error(Errno::EACCES.code());
        let inner = io::Error::other(forerun::Error::from(Error::NotFound));
        let mount = crate::MountError::Mountpoint {
            path: "/mnt".into(),
            source: ErrorKind::NotADirectory.into(),
        };
        let rows: [(Box<dyn StdError>, Errno); 5] = [
            (Box::new(Error::IsADirectory), Errno::EISDIR),
            (
                Box::new(forerun::Error::from(Error::io(0, 0, unreadable))),
                Errno::EACCES,
            ),
            (Box::new(inner), Errno::ENOENT),
            (Box::new(mount), Errno::ENOTDIR),
            (Box::new(std::fmt::Error), Errno::EIO),
        ];
        for (error, expected) in rows {
            assert_eq!(errno_of(&*error), expected.code(), "{error}");
        }
    }

    #[test]
    fn errors_of_paths_and_nodes_have_their_errno() {
        assert_rows([
            (Error::NotFound, "not_found", Errno::ENOENT, false),
            (
                Error::NotADirectory,
                "not_a_directory",
                Errno::ENOTDIR,
                false,
            ),
            (Error::IsADirectory, "is_a_directory", Errno::EISDIR, false),
            (Error::NotASymlink, "not_a_symlink", Errno::EINVAL, false),
            (Error::NotAFile, "not_a_file", Errno::EINVAL, false),
            (Error::SymlinkLoop, "symlink_loop", Errno::ELOOP, true),
            (
                Error::DirectoryLoop {
                    node: NodeId(1),
                    path: b"a".to_vec(),
                },
                "directory_loop",
                Errno::ELOOP,
                true,
            ),
            (
                Error::StaleNode(NodeId(3)),
                "stale_node",
                Errno::ESTALE,
                true,
            ),
        ]);
    }

    #[test]
    fn errors_of_changes_have_their_errno() {
        assert_rows([
            (Error::Exists, "exists", Errno::EEXIST, false),
            (Error::NotEmpty, "not_empty", Errno::ENOTEMPTY, false),
            (Error::IntoItself, "into_itself", Errno::EINVAL, false),
            (
                Error::InvalidName("a/b".into()),
                "invalid_name",
                Errno::EINVAL,
                false,
            ),
            (
                Error::NameTooLong {
                    limit: 255,
                    unit: "UTF-16 units",
                },
                "invalid_name",
                Errno::ENAMETOOLONG,
                false,
            ),
            (Error::NoSpace, "no_space", Errno::ENOSPC, false),
            (Error::TooLarge, "too_large", Errno::EFBIG, false),
            (
                Error::ReadOnly("damaged".into()),
                "read_only",
                Errno::EROFS,
                false,
            ),
            (
                Error::write(0, 512, io::Error::other("no medium")),
                "write",
                Errno::EIO,
                true,
            ),
            (
                Error::write(0, 512, ErrorKind::StorageFull.into()),
                "write",
                Errno::ENOSPC,
                false,
            ),
            (
                Error::write(0, 0, ErrorKind::QuotaExceeded.into()),
                "write",
                Errno::ENOSPC,
                false,
            ),
        ]);
    }

    #[test]
    fn errors_of_images_and_sources_have_their_errno() {
        let corrupt = Corrupt::new("test", Some(NodeId(7)), 512, io::Error::other("check"));
        assert_rows([
            (
                Error::limit(Bound::Entries, "entries", 10),
                "limit",
                Errno::EIO,
                true,
            ),
            (
                Error::Unsupported("feature".into()),
                "unsupported",
                Errno::EOPNOTSUPP,
                true,
            ),
            (
                Error::UnknownFormat {
                    expected: Some("romfs".into()),
                    found: "nothing".into(),
                },
                "unknown_format",
                Errno::EINVAL,
                false,
            ),
            (Error::Corrupt(corrupt), "corrupt", Errno::EIO, true),
            (
                Error::blob(
                    BlobName::Object {
                        path: b"ab/cd".to_vec(),
                    },
                    io::Error::from(ErrorKind::NotFound),
                ),
                "blob",
                Errno::EIO,
                true,
            ),
            (
                Error::io(0, 512, io::Error::from(ErrorKind::PermissionDenied)),
                "io",
                Errno::EIO,
                true,
            ),
        ]);
    }
}
