//! Files and directories of an image, by path.
//!
//! A path may be absolute or relative to the root of the image; an empty one is the root. `..` and
//! symbolic links resolve inside the image and never lead out of it.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use forerun_vfs::{FollowLast, Metadata, NodeId, canonicalize, resolve};

use crate::entries::{ReadDir, Walk};
use crate::error::{Cause, Error, Result};
use crate::file::File;
use crate::image::Image;
use crate::xattrs::Xattrs;

/// Methods that take paths.
///
/// A path may be absolute or relative to the root; an empty one is the root. `..` at the root stays
/// there, and symbolic links resolve inside the image, so that no path leads out of it. Names are
/// bytes, and need not be UTF-8. A path with more than
/// [`Limits::symlink_hops`](crate::Limits::symlink_hops) links, 40 by default, fails with the kind
/// of `ELOOP`.
impl Image {
    /// Reads a whole file.
    ///
    /// ```
    #[doc = include_str!("example.md")]
    /// let image = forerun::Image::open("x.sqsh")?;
    /// assert_eq!(image.read("/etc/passwd")?, b"root:x:0:0\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`file`](Self::file), and of reading it. Refuses a file longer than
    /// [`Limits::read_bytes`](crate::Limits::read_bytes), 1 GiB by default; use
    /// [`file`](Self::file) to read it in parts.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let path = path.as_ref();
        self.at(path, || self.open_node(path)?.contents())
    }

    /// Reads a whole file, which must be UTF-8.
    ///
    /// ```
    #[doc = include_str!("example.md")]
    /// let image = forerun::Image::open("x.sqsh")?;
    /// assert_eq!(image.read_to_string("/etc/passwd")?, "root:x:0:0\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`read`](Self::read), and [`Cause::NotUtf8`].
    pub fn read_to_string(&self, path: impl AsRef<Path>) -> Result<String> {
        let path = path.as_ref();
        String::from_utf8(self.read(path)?).map_err(|error| {
            let error = Error::new(Cause::NotUtf8(error.utf8_error()));
            error.at(path).of_image(self.name())
        })
    }

    /// Opens a regular file for reading and seeking. Follows symbolic links.
    ///
    /// ```
    #[doc = include_str!("example.md")]
    /// let image = forerun::Image::open("x.sqsh")?;
    /// let mut copy = std::fs::File::create("hosts")?;
    /// let len = std::io::copy(&mut image.file("/etc/hosts")?, &mut copy)?;
    /// assert_eq!(len, 20);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`metadata`](Self::metadata), and errors for a directory and for a device, pipe or
    /// socket.
    pub fn file(&self, path: impl AsRef<Path>) -> Result<File> {
        let path = path.as_ref();
        self.at(path, || self.open_node(path))
    }

    /// Returns the metadata of a file or directory. Follows symbolic links.
    ///
    /// ```
    #[doc = include_str!("example.md")]
    /// let image = forerun::Image::open("x.sqsh")?;
    /// let metadata = image.metadata("/users")?;
    /// assert!(metadata.is_file());
    /// assert_eq!((metadata.size, metadata.mode), (11, 0o644));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `NotFound`; `NotADirectory` if a component before the last is not a directory; the kind of
    /// `ELOOP`; errors of reading the image.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        let path = path.as_ref();
        self.at(path, || {
            let node = self.find(path, FollowLast::Yes)?;
            self.reader().fs().metadata(node)
        })
    }

    /// Like [`metadata`](Self::metadata), but does not follow a symbolic link in the last
    /// component.
    ///
    /// ```
    #[doc = include_str!("example.md")]
    /// let image = forerun::Image::open("x.sqsh")?;
    /// assert!(image.symlink_metadata("/users")?.is_symlink());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`metadata`](Self::metadata).
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        let path = path.as_ref();
        self.at(path, || {
            let node = self.find(path, FollowLast::No)?;
            self.reader().fs().metadata(node)
        })
    }

    /// Returns whether a path exists. Returns false for a symbolic link to a missing file.
    ///
    /// ```
    #[doc = include_str!("example.md")]
    /// let image = forerun::Image::open("x.sqsh")?;
    /// assert!(image.exists("/etc/passwd")?);
    /// assert!(!image.exists("/etc/shadow")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`metadata`](Self::metadata) except `NotFound` and `NotADirectory`.
    pub fn exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        use forerun_vfs::Error as E;
        let path = path.as_ref();
        self.at(path, || match self.find(path, FollowLast::Yes) {
            Ok(_) => Ok(true),
            Err(E::NotFound | E::NotADirectory) => Ok(false),
            Err(error) => Err(error),
        })
    }

    /// Returns the target of a symbolic link.
    ///
    /// ```
    #[doc = include_str!("example.md")]
    /// let image = forerun::Image::open("x.sqsh")?;
    /// assert_eq!(image.read_link("/users")?.to_str(), Some("etc/passwd"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidInput` if the path is not a symbolic link, and the errors of
    /// [`metadata`](Self::metadata).
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let path = path.as_ref();
        self.at(path, || {
            let node = self.find(path, FollowLast::No)?;
            let target = self.reader().fs().read_link(node)?;
            Ok(OsString::from_vec(target).into())
        })
    }

    /// Returns the absolute path without symbolic links, `.` and `..`. A format that ignores case in names
    /// keeps the spelling of `path`.
    ///
    /// ```
    #[doc = include_str!("example.md")]
    /// let image = forerun::Image::open("x.sqsh")?;
    /// assert_eq!(image.canonicalize("etc/../users")?.to_str(), Some("/etc/passwd"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`metadata`](Self::metadata).
    pub fn canonicalize(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let path = path.as_ref();
        self.at(path, || {
            let reader = self.reader();
            let bytes = path.as_os_str().as_bytes();
            let (_, canonical) = canonicalize(reader.fs(), bytes, reader.limits())?;
            Ok(OsString::from_vec(canonical).into())
        })
    }

    /// Returns the entries of a directory, in the image's order and without `.` and `..`.
    ///
    /// ```
    #[doc = include_str!("example.md")]
    /// let image = forerun::Image::open("x.sqsh")?;
    /// let mut names = Vec::new();
    /// for entry in image.read_dir("/etc")? {
    ///     let entry = entry?;
    ///     names.push((entry.name().to_owned(), entry.metadata()?.size));
    /// }
    /// assert_eq!(names, [("hosts".into(), 20), ("passwd".into(), 11)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `NotADirectory`, and the errors of [`metadata`](Self::metadata).
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        let path = path.as_ref();
        self.at(path, || {
            let node = self.find(path, FollowLast::Yes)?;
            ReadDir::new(self, path, node)
        })
    }

    /// Returns a walk of the whole image, the root first. Does not follow symbolic links.
    ///
    /// ```
    #[doc = include_str!("example.md")]
    /// let image = forerun::Image::open("x.sqsh")?;
    /// let mut bytes = 0;
    /// for entry in image.walk() {
    ///     let entry = entry?;
    ///     println!("{}", entry.path().display());
    ///     if entry.file_type() == forerun::FileType::Regular {
    ///         bytes += entry.metadata()?.size;
    ///     }
    /// }
    /// assert_eq!(bytes, 31);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn walk(&self) -> Walk<'_> {
        Walk::new(self, Path::new("/"), self.reader().fs().root())
    }

    /// Returns a walk of a file or directory and everything below it. Follows symbolic links in
    /// `path`, but no others.
    ///
    /// ```
    #[doc = include_str!("example.md")]
    /// let image = forerun::Image::open("x.sqsh")?;
    /// assert_eq!(image.walk_from("/etc")?.count(), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`metadata`](Self::metadata).
    pub fn walk_from(&self, path: impl AsRef<Path>) -> Result<Walk<'_>> {
        let path = path.as_ref();
        let node = self.at(path, || self.find(path, FollowLast::Yes))?;
        Ok(Walk::new(self, path, node))
    }

    /// Like [`walk_from`](Self::walk_from), but the walk keeps the image open: for a caller that
    /// cannot borrow it, such as an iterator in another language.
    ///
    /// ```
    #[doc = include_str!("example.md")]
    /// let walk = forerun::Image::open("x.sqsh")?.into_walk("/etc")?;
    /// assert_eq!(walk.count(), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`metadata`](Self::metadata).
    pub fn into_walk(self, path: impl AsRef<Path>) -> Result<Walk<'static>> {
        let path = path.as_ref();
        let node = self.at(path, || self.find(path, FollowLast::Yes))?;
        Ok(Walk::shared(self, path, node))
    }

    /// Returns the extended attributes of a file or directory. Follows symbolic links.
    ///
    /// ```
    #[doc = include_str!("example.md")]
    /// let image = forerun::Image::open("x.sqsh")?;
    /// assert!(image.xattrs("/etc/passwd")?.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`metadata`](Self::metadata), and an error if they exceed
    /// [`Limits::xattr_bytes`](crate::Limits::xattr_bytes).
    pub fn xattrs(&self, path: impl AsRef<Path>) -> Result<Xattrs> {
        let path = path.as_ref();
        self.at(path, || self.xattrs_of(self.find(path, FollowLast::Yes)?))
    }

    fn find(&self, path: &Path, last: FollowLast) -> forerun_vfs::Result<NodeId> {
        let reader = self.reader();
        resolve(
            reader.fs(),
            path.as_os_str().as_bytes(),
            last,
            reader.limits(),
        )
    }

    fn open_node(&self, path: &Path) -> forerun_vfs::Result<File> {
        File::open(self, path, self.find(path, FollowLast::Yes)?)
    }

    /// Runs `read`, and adds the image and `path` to its error.
    fn at<T>(&self, path: &Path, read: impl FnOnce() -> forerun_vfs::Result<T>) -> Result<T> {
        read().map_err(|error| self.failed(path, error))
    }
}
