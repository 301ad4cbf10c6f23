//! The objects of one open image: numbered when they are first needed, verified when they are
//! opened.

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use forerun_io::{BlobId, FileSource, ReadAt, Unpoisoned, u64_from, usize_from};
use forerun_vfs::{BlobName, Bound, Error, ResolveBlob, Result, Verity};

use crate::digest::Digest;
use crate::object_name::Payload;

/// The properties that the image requires of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Wanted {
    pub payload: Payload,
    /// The digest that the object must have.
    pub digest: Option<Digest>,
    pub size: u64,
}

impl Wanted {
    fn blob_name(&self) -> BlobName {
        BlobName::Object {
            path: self.payload.path(),
        }
    }

    fn failed(&self, kind: io::ErrorKind, reason: String) -> Error {
        Error::blob(self.blob_name(), io::Error::new(kind, reason))
    }
}

/// Age of a file's last change from which its identity is trusted. Filesystem clocks tick every few
/// milliseconds (some every two seconds), and two changes within one tick look the same.
const SETTLED: Duration = Duration::from_secs(3);

/// Identifies a file that had the right digest. A file that was changed or replaced since has
/// another identity.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    len: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Identity {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            len: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Returns whether a later change would be visible, because the last change is neither too
    /// recent nor in the future.
    fn is_settled(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let changed = u64::try_from(self.changed.0).map(Duration::from_secs);
        match (now, changed) {
            (Ok(now), Ok(changed)) => now.checked_sub(changed).is_some_and(|age| age > SETTLED),
            _ => false,
        }
    }
}

struct Object {
    wanted: Wanted,
    /// Locked while the digest is computed, so that no second thread computes it.
    verified: Mutex<Option<Identity>>,
}

/// Objects by number, from 1.
pub struct ObjectTable {
    resolver: Arc<dyn ResolveBlob>,
    verity: Verity,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    objects: Vec<Arc<Object>>,
    numbers: HashMap<Wanted, BlobId>,
}

pub enum Opened {
    /// A file of the host.
    File(File),
    Source(Arc<dyn ReadAt>),
}

impl Opened {
    fn into_source(self) -> io::Result<Arc<dyn ReadAt>> {
        Ok(match self {
            Self::File(file) => Arc::new(FileSource::from_file(file)?),
            Self::Source(source) => source,
        })
    }
}

impl ObjectTable {
    pub fn new(resolver: Arc<dyn ResolveBlob>, verity: Verity) -> Self {
        Self {
            resolver,
            verity,
            known: Mutex::default(),
        }
    }

    pub const fn verity(&self) -> Verity {
        self.verity
    }

    /// Returns the number of an object. Opens nothing.
    pub fn number(&self, wanted: Wanted) -> Result<BlobId> {
        let mut known = self.known();
        if let Some(&number) = known.numbers.get(&wanted) {
            return Ok(number);
        }
        let next = known.objects.len() + 1;
        let limit = u64::from(u32::MAX);
        let number = u32::try_from(next)
            .map_err(|_| Error::limit(Bound::Other, "objects of one image", limit))?;
        known.objects.push(Arc::new(Object {
            wanted: wanted.clone(),
            verified: Mutex::new(None),
        }));
        known.numbers.insert(wanted, BlobId(number));
        Ok(BlobId(number))
    }

    /// Opens an object for reading. Checks its length. Verifies its digest if that is required and
    /// was not done before.
    pub fn open(&self, blob: BlobId) -> Result<Arc<dyn ReadAt>> {
        let object = self.object(blob)?;
        let opened = self.open_checked(&object)?;
        opened
            .into_source()
            .map_err(|error| Error::blob(object.wanted.blob_name(), error))
    }

    /// Like [`open`](Self::open), but only for a file of the host.
    pub fn open_file(&self, blob: BlobId) -> Result<Option<File>> {
        match self.open_checked(&*self.object(blob)?)? {
            Opened::File(file) => Ok(Some(file)),
            Opened::Source(_) => Ok(None),
        }
    }

    fn object(&self, blob: BlobId) -> Result<Arc<Object>> {
        let position = usize::try_from(blob.0).ok().and_then(|n| n.checked_sub(1));
        let known = self.known();
        match position.and_then(|position| known.objects.get(position)) {
            Some(object) => Ok(Arc::clone(object)),
            None => Err(Error::Unsupported(format!(
                "no object has number {}",
                blob.0
            ))),
        }
    }

    /// Returns whether an object is still the unchanged file that had the right digest. Always true
    /// if digests are not verified.
    pub fn is_current(&self, blob: BlobId) -> bool {
        let Ok(object) = self.object(blob) else {
            return false;
        };
        if self.verity == Verity::Off || object.wanted.digest.is_none() {
            return true;
        }
        let file = self.resolver.open_file(&object.wanted.blob_name());
        let identity = match file.and_then(|file| file.map(|file| file.metadata()).transpose()) {
            Ok(Some(metadata)) => Some(Identity::of(&metadata)),
            // A source other than a file has no identity, so it is opened and verified again.
            Ok(None) | Err(_) => None,
        };
        identity.is_some() && *lock(&object.verified) == identity
    }

    fn open_checked(&self, object: &Object) -> Result<Opened> {
        let wanted = &object.wanted;
        let name = wanted.blob_name();
        let failed = |error| Error::blob(name.clone(), error);
        let opened = match self.resolver.open_file(&name).map_err(failed)? {
            Some(file) => Opened::File(file),
            None => Opened::Source(self.resolver.open(&name).map_err(failed)?),
        };
        let identity = match &opened {
            Opened::File(file) => Some(Identity::of(&file.metadata().map_err(failed)?)),
            Opened::Source(_) => None,
        };
        let len = match (&opened, identity) {
            (_, Some(identity)) => identity.len,
            (Opened::Source(source), None) => source.len(),
            (Opened::File(_), None) => 0,
        };
        if len != wanted.size {
            let reason = format!("it is {len} bytes long; the image says {}", wanted.size);
            return Err(wanted.failed(io::ErrorKind::InvalidData, reason));
        }
        let Some(digest) = wanted.digest.filter(|_| self.verity != Verity::Off) else {
            return Ok(opened);
        };
        let mut verified = lock(&object.verified);
        if identity.is_none() || *verified != identity {
            *verified = None;
            // Taken before the bytes are read, so that a change during the read cannot hide in the
            // same tick.
            let settled = identity.filter(Identity::is_settled);
            let found = measure(&opened, digest).map_err(failed)?;
            if found != digest {
                tracing::error!(object = %name, wanted = %digest, %found, "an object has the wrong digest");
                let reason = format!("its digest is {found}; the image says {digest}");
                return Err(wanted.failed(io::ErrorKind::InvalidData, reason));
            }
            if let Opened::File(file) = &opened
                && identity != Some(Identity::of(&file.metadata().map_err(failed)?))
            {
                let reason = "it was changed while it was verified".to_owned();
                return Err(wanted.failed(io::ErrorKind::InvalidData, reason));
            }
            *verified = settled;
        }
        Ok(opened)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        lock(&self.known)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The guarded data is consistent after a panic of any thread.
    mutex.lock().unpoisoned()
}

/// Returns the digest of an object. If the kernel already enforces the wanted digest for the file,
/// no bytes are read. The kernel may also report a digest of another method, for example with a
/// salt.
fn measure(opened: &Opened, wanted: Digest) -> io::Result<Digest> {
    let by = wanted.algorithm();
    let (found, _) = match opened {
        Opened::File(file) => {
            let protected = forerun_sys::verity::digest(file)?;
            if protected.is_some_and(|found| found == wanted.bytes()) {
                return Ok(wanted);
            }
            by.measure(Stream::new(&FileSource::from_file(file.try_clone()?)?))?
        }
        Opened::Source(source) => by.measure(Stream::new(&**source))?,
    };
    Ok(found)
}

/// A reader of a source from its start.
pub struct Stream<'s> {
    source: &'s dyn ReadAt,
    at: u64,
}

impl<'s> Stream<'s> {
    pub const fn new(source: &'s dyn ReadAt) -> Self {
        Self { source, at: 0 }
    }
}

impl Read for Stream<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let left = usize_from(self.source.len() - self.at);
        let len = out.len().min(left);
        self.source.read_exact_at(self.at, &mut out[..len])?;
        self.at += u64_from(len);
        Ok(len)
    }
}
