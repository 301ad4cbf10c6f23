//! The error of methods that take paths: the driver's error, with the image and the path.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::Utf8Error;
use std::sync::Arc;

#[cfg(feature = "remote")]
use forerun_remote::RemoteError;
use forerun_vfs::Bound;

/// The result of methods that take paths.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error of opening an image, or of reading something in it by its path.
///
/// It converts into an [`io::Error`] of a matching kind. An [`io::Error`] from a
/// [`File`](crate::File) contains it.
///
/// ```
/// use std::io;
///
#[doc = include_str!("example.md")]
/// let error = forerun::Image::open("x.sqsh")?.read("/etc/shadow").unwrap_err();
/// assert_eq!(error.kind(), io::ErrorKind::NotFound);
/// assert_eq!(error.to_string(), "x.sqsh: /etc/shadow: no such file or directory");
///
/// let error = io::Error::from(error);
/// assert_eq!(error.kind(), io::ErrorKind::NotFound);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Error(Box<Parts>);

#[derive(Clone)]
struct Parts {
    image: Option<PathBuf>,
    path: Option<PathBuf>,
    cause: Cause,
}

/// The cause of an [`Error`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Cause {
    /// The file or device of the image could not be opened.
    Open(Arc<io::Error>),
    /// The driver or the engine failed.
    Image(forerun_vfs::Error),
    /// The image on a server could not be opened.
    #[cfg(feature = "remote")]
    Remote(RemoteError),
    /// The file is not valid UTF-8.
    NotUtf8(Utf8Error),
}

impl Error {
    pub(crate) fn new(cause: Cause) -> Self {
        Self(Box::new(Parts {
            image: None,
            path: None,
            cause,
        }))
    }

    pub(crate) fn of_image(mut self, image: Option<&Path>) -> Self {
        self.0.image = image.map(Path::to_path_buf);
        self
    }

    pub(crate) fn at(mut self, path: &Path) -> Self {
        self.0.path = Some(path.to_path_buf());
        self
    }

    /// Returns the name by which the image was opened: its path, or its address without
    /// credentials. Returns `None` if it was opened from a source without a name.
    #[must_use]
    pub fn image(&self) -> Option<&Path> {
        self.0.image.as_deref()
    }

    /// Returns the path in the image, as the caller gave it. Returns `None` if the image could not
    /// be opened.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// Returns the cause.
    #[must_use]
    pub fn cause(&self) -> &Cause {
        &self.0.cause
    }

    /// Returns the kind that an [`io::Error`] of the same meaning has.
    ///
    /// `NotFound`, `NotADirectory`, `IsADirectory`, `PermissionDenied` and the kind of `ELOOP`
    /// refer to the path that the caller gave. If a file or device that holds the image's data is
    /// missing or too short, the error has another kind, so that no program mistakes it for a
    /// missing file or the end of a file.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        match &self.0.cause {
            Cause::Open(error) => error.kind(),
            Cause::Image(error) => image_kind(error),
            #[cfg(feature = "remote")]
            Cause::Remote(error) => remote_kind(error),
            Cause::NotUtf8(_) => io::ErrorKind::InvalidData,
        }
    }
}

fn image_kind(error: &forerun_vfs::Error) -> io::ErrorKind {
    use forerun_vfs::Error as E;
    use io::ErrorKind as Kind;
    match error {
        E::NotFound => Kind::NotFound,
        E::NotADirectory => Kind::NotADirectory,
        E::IsADirectory => Kind::IsADirectory,
        E::NotASymlink | E::NotAFile | E::IntoItself => Kind::InvalidInput,
        E::SymlinkLoop => too_many_links(),
        E::Limit {
            bound: Bound::ReadBytes,
            ..
        }
        | E::TooLarge => Kind::FileTooLarge,
        E::DirectoryLoop { .. }
        | E::StaleNode(_)
        | E::Limit { .. }
        | E::UnknownFormat { .. }
        | E::Corrupt(_) => Kind::InvalidData,
        E::Unsupported(_) => Kind::Unsupported,
        E::Exists => Kind::AlreadyExists,
        E::NotEmpty => Kind::DirectoryNotEmpty,
        E::InvalidName(_) | E::NameTooLong { .. } => Kind::InvalidFilename,
        E::NoSpace => Kind::StorageFull,
        E::ReadOnly(_) => Kind::ReadOnlyFilesystem,
        E::Write { source, .. }
        | E::Blob { source, .. }
        | E::Spool { source }
        | E::Io { source, .. } => below(source),
        // New variants may be added.
        _ => Kind::Other,
    }
}

/// Returns the kind of an error of a source below the image. Never `Interrupted`: the standard
/// library would retry forever.
fn below(source: &io::Error) -> io::ErrorKind {
    use io::ErrorKind as Kind;
    match source.kind() {
        Kind::NotFound
        | Kind::NotADirectory
        | Kind::IsADirectory
        | Kind::Interrupted
        | Kind::InvalidInput => Kind::Other,
        Kind::UnexpectedEof => Kind::InvalidData,
        kind => kind,
    }
}

/// Returns the kind of `ELOOP`, which stable Rust cannot name.
fn too_many_links() -> io::ErrorKind {
    io::Error::from(rustix::io::Errno::LOOP).kind()
}

#[cfg(feature = "remote")]
const fn remote_kind(error: &RemoteError) -> io::ErrorKind {
    use io::ErrorKind as Kind;
    match error {
        RemoteError::Reference { .. } => Kind::InvalidInput,
        RemoteError::NotFound { .. } => Kind::NotFound,
        RemoteError::Denied { .. } => Kind::PermissionDenied,
        RemoteError::Busy { .. } => Kind::ResourceBusy,
        RemoteError::Network { .. } => Kind::NetworkUnreachable,
        RemoteError::Timeout { .. } => Kind::TimedOut,
        RemoteError::NoRanges { .. } => Kind::Unsupported,
        RemoteError::NoLength { .. } => Kind::Unsupported,
        RemoteError::TooLong { .. } | RemoteError::TooMuch { .. } => Kind::QuotaExceeded,
        RemoteError::WrongDigest { .. } => Kind::InvalidData,
        RemoteError::Refused { .. }
        | RemoteError::Changed { .. }
        | RemoteError::Untrusted { .. }
        | RemoteError::Offline { .. }
        | RemoteError::Closed { .. }
        | RemoteError::Cache { .. } => Kind::Other,
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cause = match &self.0.cause {
            Cause::Open(error) => error.to_string(),
            Cause::Image(error) => error.to_string(),
            #[cfg(feature = "remote")]
            Cause::Remote(error) => error.to_string(),
            Cause::NotUtf8(error) => error.to_string(),
        };
        // Most errors from servers already begin with the address.
        let image = self.image().map(|image| format!("{}: ", image.display()));
        let image = image.filter(|image| !cause.starts_with(image));
        f.write_str(image.as_deref().unwrap_or_default())?;
        if let Some(path) = self.path() {
            write!(f, "{}: ", path.display())?;
        }
        f.write_str(&cause)
    }
}

/// Prints the `Display` text, because a `main` that returns an error prints its `Debug` form.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({:?}, {self})", self.kind())
    }
}

impl std::error::Error for Error {
    /// Returns the source of the cause: the error's own text already includes the cause's text.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0.cause {
            Cause::Open(error) => error.source(),
            Cause::Image(error) => error.source(),
            #[cfg(feature = "remote")]
            Cause::Remote(error) => error.source(),
            Cause::NotUtf8(error) => error.source(),
        }
    }
}

impl From<forerun_vfs::Error> for Error {
    fn from(error: forerun_vfs::Error) -> Self {
        Self::new(match error {
            // A failed read of no bytes means that the file or device could not be opened.
            forerun_vfs::Error::Io { len: 0, source, .. } => Cause::Open(source),
            error => Cause::Image(error),
        })
    }
}

/// For functions that use nodes and return the driver's error.
impl From<Error> for forerun_vfs::Error {
    fn from(error: Error) -> Self {
        let kind = error.kind();
        match error.0.cause {
            Cause::Open(source) => Self::Io {
                offset: 0,
                len: 0,
                source,
            },
            Cause::Image(error) => error,
            #[cfg(feature = "remote")]
            Cause::Remote(error) => Self::io(0, 0, io::Error::new(kind, error)),
            Cause::NotUtf8(error) => Self::io(0, 0, io::Error::new(kind, error)),
        }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::new(error.kind(), error)
    }
}

#[cfg(test)]
mod tests {
    use forerun_vfs::{BlobName, Corrupt, Error as E, NodeId};
    use io::ErrorKind as Kind;

    use super::*;

    #[track_caller]
    fn assert_kinds<const N: usize>(rows: [(E, Kind); N]) {
        for (cause, kind) in rows {
            let error = Error::from(cause).at(Path::new("/a"));
            let text = error.to_string();
            assert_eq!(error.kind(), kind, "{text}");
            let error = io::Error::from(error);
            assert_eq!((error.kind(), error.to_string()), (kind, text));
            let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
            assert_eq!(inner.and_then(Error::path), Some(Path::new("/a")));
        }
    }

    #[test]
    fn errors_of_paths_have_the_kinds_of_std() {
        assert_kinds([
            (E::NotFound, Kind::NotFound),
            (E::NotADirectory, Kind::NotADirectory),
            (E::IsADirectory, Kind::IsADirectory),
            (E::NotASymlink, Kind::InvalidInput),
            (E::NotAFile, Kind::InvalidInput),
            (E::SymlinkLoop, io::Error::from_raw_os_error(40).kind()),
            (E::limit(Bound::ReadBytes, "length", 1), Kind::FileTooLarge),
            (E::limit(Bound::Depth, "depth", 1), Kind::InvalidData),
            (E::StaleNode(NodeId(1)), Kind::InvalidData),
            (
                E::DirectoryLoop {
                    node: NodeId(1),
                    path: vec![],
                },
                Kind::InvalidData,
            ),
            (E::InvalidName("x".into()), Kind::InvalidFilename),
        ]);
        assert_ne!(too_many_links(), Kind::Other);
    }

    #[test]
    fn errors_of_images_and_their_stores_do_not_speak_of_the_path() {
        let corrupt = Corrupt::new("test", None, 512, io::Error::other("check"));
        let object = || BlobName::Object {
            path: b"ab/cd".to_vec(),
        };
        assert_kinds([
            (E::Corrupt(corrupt), Kind::InvalidData),
            (E::Unsupported("x".into()), Kind::Unsupported),
            (
                E::UnknownFormat {
                    expected: Some("x".into()),
                    found: "y".into(),
                },
                Kind::InvalidData,
            ),
            (E::blob(object(), Kind::NotFound.into()), Kind::Other),
            (
                E::blob(object(), Kind::PermissionDenied.into()),
                Kind::PermissionDenied,
            ),
            (E::io(0, 9, Kind::TimedOut.into()), Kind::TimedOut),
            (E::io(0, 9, Kind::UnexpectedEof.into()), Kind::InvalidData),
            (E::io(0, 9, Kind::Interrupted.into()), Kind::Other),
            (E::io(0, 0, Kind::NotFound.into()), Kind::NotFound),
            (E::ReadOnly("x".into()), Kind::ReadOnlyFilesystem),
            (E::NoSpace, Kind::StorageFull),
        ]);
    }

    #[cfg(feature = "remote")]
    #[test]
    fn errors_of_servers_have_the_kinds_of_std() {
        let place = || "https://h/x".to_string();
        for (cause, kind) in [
            (RemoteError::NotFound { place: place() }, Kind::NotFound),
            (
                RemoteError::Denied {
                    place: place(),
                    status: 403,
                    has_credentials: false,
                },
                Kind::PermissionDenied,
            ),
            (
                RemoteError::Timeout {
                    place: place(),
                    seconds: 1.0,
                },
                Kind::TimedOut,
            ),
            (RemoteError::NoRanges { place: place() }, Kind::Unsupported),
        ] {
            assert_eq!(Error::new(Cause::Remote(cause)).kind(), kind);
        }
    }
}
