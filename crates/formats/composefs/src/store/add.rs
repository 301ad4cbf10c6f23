//! Adds new objects: writes them under a temporary name, syncs, then renames them.
//!
//! A name appears only after its bytes are on the disk. To sync many objects at once, the writer
//! collects objects, syncs the filesystem, and then renames them. An existing object of the right
//! length stays unchanged, because another image may have it mapped, and the kernel may protect it.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use forerun_io::{Unpoisoned, u64_from};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};

use super::{ObjectStore, TEMPORARY};
use crate::digest::Digest;
use crate::verity::VerityHasher;

/// Maximum number of objects that are renamed together.
const BATCH: usize = 2048;
/// Maximum number of bytes of these objects, which the disk must write at once.
const BATCH_BYTES: u64 = 256 << 20;

const CHUNK: usize = 256 << 10;

/// Number of the next temporary file, for all stores of this process.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// The source of the bytes of a new object.
pub enum Source<'s> {
    Bytes(&'s [u8]),
    /// A file of the host. Its blocks are shared if the filesystem supports that.
    File {
        file: &'s File,
        /// The file may become an object through a hard link. A later change of the file then
        /// changes the object.
        link: bool,
    },
    Stream(Box<dyn Read + Send + 's>),
}

/// Objects that are being added to a store. [`finish`](Self::finish) renames the last of them. If
/// it is dropped without that, these are removed.
pub struct Additions<'s> {
    store: &'s ObjectStore,
    pending: Mutex<Pending>,
}

#[derive(Default)]
struct Pending {
    files: Vec<(String, Digest)>,
    /// Digests that a thread is adding or has added.
    claimed: HashSet<Digest>,
    bytes: u64,
}

impl<'s> Additions<'s> {
    #[must_use]
    pub fn new(store: &'s ObjectStore) -> Self {
        Self {
            store,
            pending: Mutex::default(),
        }
    }

    /// Adds an object unless the store has it. Returns whether it was added. Fails with
    /// [`ErrorKind::InvalidData`] if the bytes do not match `digest`, because they have changed
    /// since it was computed.
    pub fn add(&self, digest: &Digest, len: u64, source: Source<'_>) -> io::Result<bool> {
        if !self.lock().claimed.insert(*digest) {
            return Ok(false);
        }
        let added = self.add_claimed(digest, len, source);
        if added.is_err() {
            self.lock().claimed.remove(digest);
        }
        added
    }

    fn add_claimed(&self, digest: &Digest, len: u64, source: Source<'_>) -> io::Result<bool> {
        if self.store.object_len(digest)? == Some(len) {
            return Ok(false);
        }
        let temporary = Temporary::new(self.store)?;
        let name = match source {
            Source::Bytes(bytes) => {
                temporary.file.write(bytes)?;
                temporary.keep()
            }
            Source::File { file, link } => temporary.take(file, digest, link)?,
            Source::Stream(stream) => {
                temporary.copy(stream, digest)?;
                temporary.keep()
            }
        };
        let mut pending = self.lock();
        pending.files.push((name, *digest));
        pending.bytes += len;
        if pending.files.len() >= BATCH || pending.bytes >= BATCH_BYTES {
            self.name_all(&mut pending)?;
        }
        Ok(true)
    }

    /// Renames all objects, and waits until the names are on the disk.
    pub fn finish(self) -> io::Result<()> {
        let mut pending = self.lock();
        self.name_all(&mut pending)?;
        Ok(rustix::fs::syncfs(&self.store.dir)?)
    }

    fn name_all(&self, pending: &mut Pending) -> io::Result<()> {
        if pending.files.is_empty() {
            return Ok(());
        }
        rustix::fs::syncfs(&self.store.dir)?;
        while let Some((name, digest)) = pending.files.last() {
            self.name(name, digest)?;
            pending.files.pop();
        }
        pending.bytes = 0;
        Ok(())
    }

    fn name(&self, temporary: &str, digest: &Digest) -> io::Result<()> {
        let dir = &self.store.dir;
        let path = digest.object_path();
        match rustix::fs::mkdirat(dir, &path[..2], Mode::from_raw_mode(0o755)) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error.into()),
            Ok(()) | Err(_) => {}
        }
        let renamed =
            rustix::fs::renameat_with(dir, temporary, dir, &*path, RenameFlags::NOREPLACE);
        match renamed.map_err(|error| (error.kind(), error)) {
            Ok(()) => return Ok(()),
            // Another writer was faster, or the existing object is truncated.
            Err((ErrorKind::AlreadyExists, _)) => {
                let old = self.store.object_len(digest)?;
                let new = rustix::fs::statat(dir, temporary, AtFlags::SYMLINK_NOFOLLOW)?;
                if old == u64::try_from(new.st_size).ok() {
                    return Ok(rustix::fs::unlinkat(dir, temporary, AtFlags::empty())?);
                }
            }
            // The filesystem does not support the rename flags.
            Err((ErrorKind::InvalidInput | ErrorKind::Unsupported, _)) => {}
            Err((_, error)) => return Err(error.into()),
        }
        Ok(rustix::fs::renameat(dir, temporary, dir, &*path)?)
    }

    fn lock(&self) -> MutexGuard<'_, Pending> {
        // The lists are consistent after a panic of any thread.
        self.pending.lock().unpoisoned()
    }
}

impl Drop for Additions<'_> {
    fn drop(&mut self) {
        for (name, _) in std::mem::take(&mut self.lock().files) {
            let _left_for_gc = rustix::fs::unlinkat(&self.store.dir, &*name, AtFlags::empty());
        }
    }
}

/// A file with a temporary name. It is removed on drop unless it is kept.
struct Temporary<'s> {
    store: &'s ObjectStore,
    name: Option<String>,
    file: Unnamed,
}

struct Unnamed(File);

impl Unnamed {
    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        (&self.0).write_all(bytes)
    }
}

impl<'s> Temporary<'s> {
    fn new(store: &'s ObjectStore) -> io::Result<Self> {
        let (start, end) = TEMPORARY;
        let process = rustix::process::getpid().as_raw_nonzero();
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("{start}{process}-{number}{end}");
            match rustix::fs::openat(&store.dir, &*name, flags, Mode::from_raw_mode(0o644)) {
                Ok(file) => {
                    return Ok(Self {
                        store,
                        name: Some(name),
                        file: Unnamed(File::from(file)),
                    });
                }
                // A file of an earlier process with the same process id.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns the name, and keeps the file.
    fn keep(mut self) -> String {
        self.name.take().unwrap_or_default()
    }

    /// Makes this file a copy of `file`: by a link, by shared blocks, or by copying the bytes.
    fn take(mut self, file: &File, digest: &Digest, link: bool) -> io::Result<String> {
        if link && self.link(file, digest)? {
            return Ok(self.keep());
        }
        match rustix::fs::ioctl_ficlone(self.file.0.as_fd(), file) {
            Ok(()) => check(&self.file.0, digest)?,
            Err(_) => self.copy(Box::new(&mut Positioned { file, at: 0 }), digest)?,
        }
        Ok(self.keep())
    }

    /// Replaces the temporary file by a link to `file`. Returns whether that was possible.
    fn link(&mut self, file: &File, digest: &Digest) -> io::Result<bool> {
        let Some(name) = &self.name else {
            return Ok(false);
        };
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let linked = format!("{name}l{}", TEMPORARY.1);
        let dir = &self.store.dir;
        if rustix::fs::linkat(CWD, &*path, dir, &*linked, AtFlags::SYMLINK_FOLLOW).is_err() {
            return Ok(false);
        }
        let renamed = rustix::fs::renameat(dir, &*linked, dir, &**name);
        if let Err(error) = renamed {
            rustix::fs::unlinkat(dir, &*linked, AtFlags::empty())?;
            return Err(error.into());
        }
        check(file, digest)?;
        Ok(true)
    }

    fn copy(&self, mut stream: impl Read, digest: &Digest) -> io::Result<()> {
        let mut hasher = VerityHasher::new(digest.algorithm());
        let mut buffer = vec![0; CHUNK];
        loop {
            let len = match stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(len) => len,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            self.file.write(&buffer[..len])?;
            hasher.update(&buffer[..len]);
        }
        expect(&hasher.finish(), digest)
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if let Some(name) = self.name.take() {
            let _left_for_gc = rustix::fs::unlinkat(&self.store.dir, &*name, AtFlags::empty());
        }
    }
}

/// Reads a file from its start, independent of its cursor.
struct Positioned<'f> {
    file: &'f File,
    at: u64,
}

impl Read for Positioned<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let len = std::os::unix::fs::FileExt::read_at(self.file, out, self.at)?;
        self.at += u64_from(len);
        Ok(len)
    }
}

fn check(file: &File, digest: &Digest) -> io::Result<()> {
    let (found, _) = digest.algorithm().measure(Positioned { file, at: 0 })?;
    expect(&found, digest)
}

fn expect(found: &Digest, wanted: &Digest) -> io::Result<()> {
    if found == wanted {
        return Ok(());
    }
    Err(io::Error::new(
        ErrorKind::InvalidData,
        "the file changed while it was read",
    ))
}
