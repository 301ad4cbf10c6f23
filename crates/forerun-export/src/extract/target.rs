//! The directory that an extraction must not leave.
//!
//! Every path is resolved by the kernel from the target's own descriptor, beneath it and without
//! following any symbolic link, and everything new is made exclusively. So nothing that an image
//! names, and nothing that lies in the target already, can lead a write elsewhere.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use forerun_vfs::{Device, FileType, Timestamp};
use rustix::fs::{
    AtFlags, CWD, FileType as HostType, Gid, Mode, OFlags, ResolveFlags, Timespec, Timestamps, Uid,
    XattrFlags,
};
use rustix::io::Errno;

/// What is set on a node once it is there.
pub struct Attributes {
    pub mode: u16,
    pub owner: Option<(u32, u32)>,
    pub mtime: Timestamp,
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// An open target directory.
pub struct Target {
    root: OwnedFd,
    force: bool,
    /// The directory used last: entries of one directory come one after the other.
    last: Mutex<Option<(Vec<u8>, Arc<OwnedFd>)>>,
}

/// A file being written.
pub struct NewFile {
    dir: Arc<OwnedFd>,
    name: Vec<u8>,
    file: File,
}

const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS);
const DIR: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
/// While they are being filled, only the owner gets at directories and files.
const PRIVATE_DIR: Mode = Mode::RWXU;
const PRIVATE_FILE: Mode = Mode::RUSR.union(Mode::WUSR);

impl Target {
    /// Opens the directory, making it and its parents where they are missing. The path to it is the
    /// caller's own and may contain symbolic links.
    pub fn open(dir: &Path, force: bool) -> io::Result<Self> {
        std::fs::create_dir_all(dir)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(CWD, dir, flags, Mode::empty())?;
        Ok(Self {
            root,
            force,
            last: Mutex::new(None),
        })
    }

    /// Makes a directory, or accepts the one that is there.
    pub fn directory(&self, path: &[u8]) -> io::Result<()> {
        self.open_directory(path, true).map(|_| ())
    }

    /// Sets what could not be set while the directory was being filled.
    pub fn finish_directory(&self, path: &[u8], attributes: &Attributes) -> io::Result<()> {
        // The target itself stays as the user made it.
        if path.is_empty() {
            return Ok(());
        }
        let dir = self.open_directory(path, false)?;
        set(&dir, attributes)
    }

    pub fn symlink(&self, path: &[u8], target: &[u8], attributes: &Attributes) -> io::Result<()> {
        let (dir, name) = self.parent(path)?;
        self.exclusively(&dir, name, || rustix::fs::symlinkat(target, &*dir, name))?;
        set_at(&dir, name, attributes, false)
    }

    pub fn special(
        &self,
        path: &[u8],
        kind: FileType,
        device: Device,
        attributes: &Attributes,
    ) -> io::Result<()> {
        let (dir, name) = self.parent(path)?;
        let host = match kind {
            FileType::BlockDevice => HostType::BlockDevice,
            FileType::CharDevice => HostType::CharacterDevice,
            FileType::Socket => HostType::Socket,
            _ => HostType::Fifo,
        };
        let number = rustix::fs::makedev(device.major, device.minor);
        self.exclusively(&dir, name, || {
            rustix::fs::mknodat(&*dir, name, host, PRIVATE_FILE, number)
        })?;
        set_at(&dir, name, attributes, true)
    }

    /// Makes a new, empty file.
    pub fn create(&self, path: &[u8]) -> io::Result<NewFile> {
        let (dir, name) = self.parent(path)?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = self.exclusively(&dir, name, || {
            rustix::fs::openat(&*dir, name, flags, PRIVATE_FILE)
        })?;
        Ok(NewFile {
            name: name.to_vec(),
            dir,
            file: file.into(),
        })
    }

    /// Gives the file at `first` one more name.
    pub fn link(&self, first: &[u8], path: &[u8]) -> io::Result<()> {
        let (from, from_name) = self.parent(first)?;
        let (dir, name) = self.parent(path)?;
        self.exclusively(&dir, name, || {
            rustix::fs::linkat(&*from, from_name, &*dir, name, AtFlags::empty())
        })
    }

    /// The directory a path is in, and the last component.
    fn parent<'p>(&self, path: &'p [u8]) -> io::Result<(Arc<OwnedFd>, &'p [u8])> {
        let (parent, name) = match path.iter().rposition(|&byte| byte == b'/') {
            Some(at) => (
                path.get(..at).unwrap_or_default(),
                path.get(at + 1..).unwrap_or_default(),
            ),
            None => (&b""[..], path),
        };
        // Drivers refuse such names; this must hold whatever they do.
        if matches!(name, b"" | b"." | b"..") {
            return Err(io::Error::new(io::ErrorKind::InvalidFilename, "not a name"));
        }
        Ok((self.open_directory(parent, true)?, name))
    }

    fn open_directory(&self, path: &[u8], make: bool) -> io::Result<Arc<OwnedFd>> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, dir)) = last.as_ref().filter(|(there, _)| there == path) {
            return Ok(Arc::clone(dir));
        }
        let dir = match self.beneath(path) {
            Err(Errno::NOENT) if make => self.make_directories(path)?,
            // Something else is in the way; only when forced may it go.
            Err(Errno::NOTDIR | Errno::LOOP) if make => self.make_directories(path)?,
            found => found?,
        };
        let dir = Arc::new(dir);
        *last = Some((path.to_vec(), Arc::clone(&dir)));
        Ok(dir)
    }

    fn beneath(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        let path = if path.is_empty() { b"." } else { path };
        rustix::fs::openat2(&self.root, path, DIR, Mode::empty(), BENEATH)
    }

    /// Makes each missing component in turn.
    fn make_directories(&self, path: &[u8]) -> io::Result<OwnedFd> {
        let mut dir = self.beneath(b"")?;
        for name in path.split(|&byte| byte == b'/') {
            dir = match rustix::fs::openat2(&dir, name, DIR, Mode::empty(), BENEATH) {
                Ok(there) => there,
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
                    self.exclusively(&dir, name, || rustix::fs::mkdirat(&dir, name, PRIVATE_DIR))?;
                    rustix::fs::openat2(&dir, name, DIR, Mode::empty(), BENEATH)?
                }
                Err(error) => return Err(error.into()),
            };
        }
        Ok(dir)
    }

    /// Runs what makes `name`; where something of that name is there already, that is an error, or
    /// when forced it is unlinked first.
    fn exclusively<T>(
        &self,
        dir: &OwnedFd,
        name: &[u8],
        make: impl Fn() -> rustix::io::Result<T>,
    ) -> io::Result<T> {
        match make() {
            Err(Errno::EXIST) if self.force => {
                rustix::fs::unlinkat(dir, name, AtFlags::empty())?;
                Ok(make()?)
            }
            made => Ok(made?),
        }
    }
}

impl NewFile {
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    /// Sets the size, which leaves a hole at the end where there is one, and everything else.
    pub fn finish(&mut self, size: u64, attributes: &Attributes) -> io::Result<()> {
        self.file.set_len(size)?;
        set(&self.file, attributes)
    }

    /// Takes the file away again.
    pub fn remove(self) {
        let _it_may_be_gone = rustix::fs::unlinkat(&*self.dir, &self.name, AtFlags::empty());
    }
}

/// By descriptor. The owner comes before the mode, since changing it clears special bits; the time
/// comes last.
fn set(fd: impl std::os::fd::AsFd, attributes: &Attributes) -> io::Result<()> {
    for (name, value) in &attributes.xattrs {
        rustix::fs::fsetxattr(&fd, name.as_slice(), value, XattrFlags::empty())?;
    }
    if let Some((uid, gid)) = attributes.owner {
        rustix::fs::fchown(&fd, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
    }
    rustix::fs::fchmod(&fd, Mode::from_bits_truncate(attributes.mode.into()))?;
    rustix::fs::futimens(&fd, &times(attributes))?;
    Ok(())
}

/// By name, for what must not be opened. The name was just made, and no link is followed.
fn set_at(dir: &OwnedFd, name: &[u8], attributes: &Attributes, has_mode: bool) -> io::Result<()> {
    if let Some((uid, gid)) = attributes.owner {
        let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        rustix::fs::chownat(dir, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
    }
    if has_mode {
        rustix::fs::chmodat(
            dir,
            name,
            Mode::from_bits_truncate(attributes.mode.into()),
            AtFlags::empty(),
        )?;
    }
    rustix::fs::utimensat(dir, name, &times(attributes), AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(())
}

fn times(attributes: &Attributes) -> Timestamps {
    let Timestamp {
        seconds,
        nanoseconds,
    } = attributes.mtime;
    let time = Timespec {
        tv_sec: seconds,
        tv_nsec: nanoseconds.into(),
    };
    Timestamps {
        last_access: time,
        last_modification: time,
    }
}
