//! Metadata, as stat(2) and similar calls return it.

use std::ffi::c_char;
use std::os::unix::ffi::OsStrExt;

use forerun::vfs::{FileType, Metadata};

use crate::boundary::{answer, bytes, give_bytes, object, path, put};
use crate::error::forerun_error;
use crate::failure::Failure;
use crate::image::forerun_image;

/// Kind of a node, as the first letter of `ls -l` shows it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum forerun_kind {
    FORERUN_REGULAR = 0,
    FORERUN_DIRECTORY = 1,
    FORERUN_SYMLINK = 2,
    FORERUN_BLOCK_DEVICE = 3,
    FORERUN_CHAR_DEVICE = 4,
    FORERUN_FIFO = 5,
    FORERUN_SOCKET = 6,
}

impl From<FileType> for forerun_kind {
    fn from(kind: FileType) -> Self {
        match kind {
            FileType::Regular => Self::FORERUN_REGULAR,
            FileType::Directory => Self::FORERUN_DIRECTORY,
            FileType::Symlink => Self::FORERUN_SYMLINK,
            FileType::BlockDevice => Self::FORERUN_BLOCK_DEVICE,
            FileType::CharDevice => Self::FORERUN_CHAR_DEVICE,
            FileType::Fifo => Self::FORERUN_FIFO,
            FileType::Socket => Self::FORERUN_SOCKET,
        }
    }
}

/// Metadata of a file or directory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct forerun_stat {
    /// File type.
    pub kind: forerun_kind,
    /// Permission bits, with set-id and sticky bits.
    pub permissions: u32,
    /// Number of hard links.
    pub nlink: u32,
    /// User id of the owner.
    pub uid: u32,
    /// Group id of the owner.
    pub gid: u32,
    /// Major number of a device.
    pub major: u32,
    /// Minor number of a device.
    pub minor: u32,
    /// Nanoseconds of the modification time.
    pub mtime_nanoseconds: u32,
    /// Modification time in seconds since 1970.
    pub mtime: i64,
    /// Length in bytes.
    pub size: u64,
}

impl From<&Metadata> for forerun_stat {
    fn from(metadata: &Metadata) -> Self {
        Self {
            kind: metadata.kind.into(),
            permissions: metadata.mode.into(),
            nlink: metadata.nlink,
            uid: metadata.uid,
            gid: metadata.gid,
            major: metadata.device.major,
            minor: metadata.device.minor,
            mtime_nanoseconds: metadata.mtime.nanoseconds,
            mtime: metadata.mtime.seconds,
            size: metadata.size,
        }
    }
}

/// Writes the metadata at `path_in_image` to `found`. Follows symbolic links. Returns 0, or -1 on
/// errors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_stat_path(
    image: *const forerun_image,
    path_in_image: *const c_char,
    found: *mut forerun_stat,
    error: *mut *mut forerun_error,
) -> i32 {
    // SAFETY: the caller keeps the contract in lib.rs: pointers are null or valid for their use
    // here.
    unsafe {
        answer(error, -1, || {
            let metadata = object(image)?.image.metadata(path(path_in_image)?)?;
            put(found, forerun_stat::from(&metadata));
            Ok(0)
        })
    }
}

/// Writes the metadata at `path_in_image` to `found`, without following a symbolic link in the last
/// component. Returns 0, or -1 on errors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_lstat_path(
    image: *const forerun_image,
    path_in_image: *const c_char,
    found: *mut forerun_stat,
    error: *mut *mut forerun_error,
) -> i32 {
    // SAFETY: the caller keeps the contract in lib.rs: pointers are null or valid for their use
    // here.
    unsafe {
        answer(error, -1, || {
            let metadata = object(image)?
                .image
                .symlink_metadata(path(path_in_image)?)?;
            put(found, forerun_stat::from(&metadata));
            Ok(0)
        })
    }
}

/// Returns 1 if `path_in_image` exists, 0 if not, -1 on errors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_exists(
    image: *const forerun_image,
    path_in_image: *const c_char,
    error: *mut *mut forerun_error,
) -> i32 {
    // SAFETY: the caller keeps the contract in lib.rs: pointers are null or valid for their use
    // here.
    unsafe {
        answer(error, -1, || {
            let exists = object(image)?.image.exists(path(path_in_image)?)?;
            Ok(i32::from(exists))
        })
    }
}

/// Returns the target of the symbolic link at `path_in_image`, or NULL on errors. The caller frees
/// it with `forerun_bytes_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_readlink(
    image: *const forerun_image,
    path_in_image: *const c_char,
    error: *mut *mut forerun_error,
) -> *mut c_char {
    // SAFETY: the caller keeps the contract in lib.rs: pointers are null or valid for their use
    // here.
    unsafe {
        answer(error, std::ptr::null_mut(), || {
            let target = object(image)?.image.read_link(path(path_in_image)?)?;
            Ok(give_bytes(target.as_os_str().as_bytes().to_vec()).cast())
        })
    }
}

/// Returns `path_in_image` without symbolic links, "." and "..", or NULL on errors. The caller
/// frees it with `forerun_bytes_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_realpath(
    image: *const forerun_image,
    path_in_image: *const c_char,
    error: *mut *mut forerun_error,
) -> *mut c_char {
    // SAFETY: the caller keeps the contract in lib.rs: pointers are null or valid for their use
    // here.
    unsafe {
        answer(error, std::ptr::null_mut(), || {
            let real = object(image)?.image.canonicalize(path(path_in_image)?)?;
            Ok(give_bytes(real.as_os_str().as_bytes().to_vec()).cast())
        })
    }
}

/// Returns the names of the extended attributes at `path_in_image`, each followed by a NUL, and
/// writes their total length to `len`. The caller frees them with `forerun_bytes_free`. Returns
/// NULL on errors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_listxattr(
    image: *const forerun_image,
    path_in_image: *const c_char,
    len: *mut usize,
    error: *mut *mut forerun_error,
) -> *mut c_char {
    // SAFETY: the caller keeps the contract in lib.rs: pointers are null or valid for their use
    // here.
    unsafe {
        answer(error, std::ptr::null_mut(), || {
            let xattrs = object(image)?.image.xattrs(path(path_in_image)?)?;
            let mut names = Vec::new();
            for (name, _) in &xattrs {
                names.extend_from_slice(name.as_bytes());
                names.push(0);
            }
            put(len, names.len());
            Ok(give_bytes(names).cast())
        })
    }
}

/// Returns the value of an extended attribute at `path_in_image`, and writes its length to `len`.
/// The caller frees it with `forerun_bytes_free`. Returns NULL if the attribute does not exist, and
/// on errors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_getxattr(
    image: *const forerun_image,
    path_in_image: *const c_char,
    name: *const c_char,
    len: *mut usize,
    error: *mut *mut forerun_error,
) -> *mut u8 {
    // SAFETY: the caller keeps the contract in lib.rs: pointers are null or valid for their use
    // here.
    unsafe {
        answer(error, std::ptr::null_mut(), || {
            let name = bytes(name, "a name")?;
            let xattrs = object(image)?.image.xattrs(path(path_in_image)?)?;
            let found = xattrs
                .into_iter()
                .find(|(other, _)| other.as_bytes() == name);
            let (_, value) = found.ok_or_else(|| Failure::from(forerun::vfs::Error::NotFound))?;
            put(len, value.len());
            Ok(give_bytes(value))
        })
    }
}
