//! Metadata: what stat(2) and its like say of a file.

use std::ffi::c_char;
use std::os::unix::ffi::OsStrExt;

use forerun::vfs::{FileType, Metadata};

use crate::boundary::{answer, bytes, give_bytes, object, path, put};
use crate::error::forerun_error;
use crate::failure::Failure;
use crate::image::forerun_image;

/// Kind of a node, as the letter of `ls -l`.
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
    /// Kind.
    pub kind: forerun_kind,
    /// Permission bits, with set-id and sticky bits.
    pub permissions: u32,
    /// Number of names.
    pub nlink: u32,
    /// User id of the owner.
    pub uid: u32,
    /// Group id of the owner.
    pub gid: u32,
    /// Major number of a device.
    pub major: u32,
    /// Minor number of a device.
    pub minor: u32,
    /// Nanoseconds of the time of the last change of contents.
    pub mtime_nanoseconds: u32,
    /// Seconds of that time, since 1970.
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

/// Puts the metadata at `path_in_image` into `found`. Symbolic links are followed. Returns 0, or -1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_stat_path(
    image: *const forerun_image,
    path_in_image: *const c_char,
    found: *mut forerun_stat,
    error: *mut *mut forerun_error,
) -> i32 {
    // SAFETY: the caller keeps to the contract of lib.rs: pointers are null, or good for what is done with them.
    unsafe {
        answer(error, -1, || {
            let metadata = object(image)?.image.metadata(path(path_in_image)?)?;
            put(found, forerun_stat::from(&metadata));
            Ok(0)
        })
    }
}

/// Puts the metadata at `path_in_image` into `found`, of a symbolic link in the last place those of the link. Returns 0, or -1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_lstat_path(
    image: *const forerun_image,
    path_in_image: *const c_char,
    found: *mut forerun_stat,
    error: *mut *mut forerun_error,
) -> i32 {
    // SAFETY: the caller keeps to the contract of lib.rs: pointers are null, or good for what is done with them.
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

/// Returns 1 if `path_in_image` leads to a file or directory, 0 if not, -1 on errors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_exists(
    image: *const forerun_image,
    path_in_image: *const c_char,
    error: *mut *mut forerun_error,
) -> i32 {
    // SAFETY: the caller keeps to the contract of lib.rs: pointers are null, or good for what is done with them.
    unsafe {
        answer(error, -1, || {
            let exists = object(image)?.image.exists(path(path_in_image)?)?;
            Ok(i32::from(exists))
        })
    }
}

/// Returns the target of the symbolic link at `path_in_image`, for the caller to free with `forerun_bytes_free`, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_readlink(
    image: *const forerun_image,
    path_in_image: *const c_char,
    error: *mut *mut forerun_error,
) -> *mut c_char {
    // SAFETY: the caller keeps to the contract of lib.rs: pointers are null, or good for what is done with them.
    unsafe {
        answer(error, std::ptr::null_mut(), || {
            let target = object(image)?.image.read_link(path(path_in_image)?)?;
            Ok(give_bytes(target.as_os_str().as_bytes().to_vec()).cast())
        })
    }
}

/// Returns `path_in_image` without symbolic links, "." and "..", for the caller to free with `forerun_bytes_free`, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_realpath(
    image: *const forerun_image,
    path_in_image: *const c_char,
    error: *mut *mut forerun_error,
) -> *mut c_char {
    // SAFETY: the caller keeps to the contract of lib.rs: pointers are null, or good for what is done with them.
    unsafe {
        answer(error, std::ptr::null_mut(), || {
            let real = object(image)?.image.canonicalize(path(path_in_image)?)?;
            Ok(give_bytes(real.as_os_str().as_bytes().to_vec()).cast())
        })
    }
}

/// Returns the names of the extended attributes at `path_in_image`, each with a NUL behind it, and puts the number of bytes into
/// `len`. The caller frees them with `forerun_bytes_free`. Returns NULL on errors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_listxattr(
    image: *const forerun_image,
    path_in_image: *const c_char,
    len: *mut usize,
    error: *mut *mut forerun_error,
) -> *mut c_char {
    // SAFETY: the caller keeps to the contract of lib.rs: pointers are null, or good for what is done with them.
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

/// Returns the value of an extended attribute at `path_in_image`, and puts the number of its bytes into `len`. The caller frees
/// it with `forerun_bytes_free`. Returns NULL if there is none of that name, and on errors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_getxattr(
    image: *const forerun_image,
    path_in_image: *const c_char,
    name: *const c_char,
    len: *mut usize,
    error: *mut *mut forerun_error,
) -> *mut u8 {
    // SAFETY: the caller keeps to the contract of lib.rs: pointers are null, or good for what is done with them.
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
