//! Removes objects that no image needs.

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use forerun_io::usize_from;
use forerun_vfs::objects::{Collected, Collector};
use forerun_vfs::{BlobName, Error, FileSystem, FileType, Held, OpenWith, Result, Walk};

use crate::digest::Algorithm;
use crate::digest::Digest;
use crate::object::Stream;
use crate::object_name::{ObjectName, Payload};
use crate::ondisk;
use crate::overlay::{Attributes, USER_REDIRECT, object_at};
use crate::store::{ObjectStore, Stored};

/// Age from which temporary files count as abandoned.
const STALE: Duration = Duration::from_secs(24 * 60 * 60);

/// Memory of an object name in the set, including growth of the set.
const NAME: usize = 4 * size_of::<ObjectName>();

/// The files of a store that must stay.
#[derive(Debug, Default)]
pub struct Needed {
    names: HashSet<ObjectName>,
    /// Device and inode of the images. In some stores, images are objects themselves.
    images: HashSet<(u64, u64)>,
}

impl Needed {
    /// Adds an image and its objects. `file` is the image's device and inode. The limits in `with`
    /// apply.
    ///
    /// # Errors
    /// The errors of opening and walking the image, a redirect to something other than an object,
    /// and [`Error::UnknownFormat`] for an EROFS image that is not composefs. The caller must not
    /// collect objects after an error, because it is unknown which ones the image needs.
    pub fn add(
        &mut self,
        store: &ObjectStore,
        with: OpenWith,
        file: Option<(u64, u64)>,
    ) -> Result<()> {
        let source = Arc::clone(&with.metadata);
        let failed = |error| Error::io(0, 0, error);
        let mut head = vec![0; ondisk::PROBE_LEN.min(usize_from(source.len()))];
        source.read_exact_at(0, &mut head).map_err(failed)?;
        let mut objects = HashSet::new();
        referenced(with, &mut objects)?;
        if objects.is_empty() && !ondisk::is_composefs(&head) {
            return Err(Error::UnknownFormat {
                expected: Some("composefs".into()),
                found: "an EROFS image that refers to no object".into(),
            });
        }
        expect_some(store, &objects)?;
        self.names.extend(objects);
        self.images.extend(file);
        let digests = Algorithm::measure_all(Stream::new(&*source)).map_err(failed)?;
        self.names.extend(digests.map(ObjectName::from));
        Ok(())
    }

    fn has(&self, digest: &Digest, file: (u64, u64)) -> bool {
        self.names.contains(&(*digest).into()) || self.images.contains(&file)
    }
}

/// Refuses an image without any object in the store: it was made for another store.
fn expect_some(store: &ObjectStore, objects: &HashSet<ObjectName>) -> Result<()> {
    let failed = |name: &ObjectName, error| {
        let path = name.path().into_bytes();
        Error::blob(BlobName::Object { path }, error)
    };
    for name in objects {
        let len = store
            .len_of(name.path().as_bytes())
            .map_err(|error| failed(name, error))?;
        if len.is_some() {
            return Ok(());
        }
    }
    match objects.iter().next() {
        Some(name) => {
            let reason = "this store has none of the image's objects";
            Err(failed(
                name,
                io::Error::new(io::ErrorKind::NotFound, reason),
            ))
        }
        None => Ok(()),
    }
}

/// Adds the names of the objects that an image refers to. The limits in `with` apply.
pub fn referenced(with: OpenWith, names: &mut HashSet<ObjectName>) -> Result<()> {
    let limits = with.limits.clone();
    // Opened as EROFS, because composefs hides the attributes that are needed here.
    let metadata = forerun_erofs::Erofs::open(with)?;
    let mut held = Held::new(&limits);
    for entry in Walk::new(&metadata, metadata.root(), &limits) {
        let entry = entry?;
        if entry.metadata?.kind != FileType::Regular {
            continue;
        }
        held.add(NAME)?;
        let attributes = Attributes::of(&metadata, entry.node)?;
        match (attributes.payload(entry.node)?, attributes.redirect) {
            (Some((Payload::Object(name), _)), _) => _ = names.insert(name),
            // The path is below another directory, or only other drivers follow this redirect.
            (_, Some(path)) => _ = names.insert(object_at(&path, entry.node)?),
            (_, None) => {}
        }
        metadata.xattrs(entry.node, &mut |name, value| {
            if name == USER_REDIRECT {
                names.extend(ObjectName::parse(value));
            }
        })?;
    }
    Ok(())
}

/// A file of the store that is not needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Garbage {
    /// An object that no image refers to.
    Object(Digest),
    /// A temporary file that an interrupted writer left.
    Temporary(String),
}

/// Removes the files in `store` that are not in `needed`. With `dry_run`, only reports them. No
/// process may add objects for other images at the same time. If it fails, files that were removed
/// before stay removed.
pub fn collect(
    store: &ObjectStore,
    needed: &Needed,
    dry_run: bool,
    tell: &mut dyn FnMut(&Garbage),
) -> io::Result<Collected> {
    let mut found = Vec::new();
    let mut collected = Collected::default();
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let stale = now.unwrap_or_default().saturating_sub(STALE).as_secs();
    // Lists all names first, because a directory must not change while it is read.
    store.list(&mut |stored| match stored {
        Stored::Object { digest, file, .. } if needed.has(&digest, file) => collected.kept += 1,
        Stored::Object { digest, disk, .. } => {
            collected.bytes += disk;
            found.push(Garbage::Object(digest));
        }
        Stored::Temporary { name, mtime } => {
            if u64::try_from(mtime).is_ok_and(|mtime| mtime < stale) {
                found.push(Garbage::Temporary(name));
            }
        }
    })?;
    for garbage in found {
        if !dry_run {
            match &garbage {
                Garbage::Object(digest) => store.remove(digest)?,
                Garbage::Temporary(name) => store.remove_temporary(name)?,
            }
        }
        collected.removed += 1;
        tell(&garbage);
    }
    Ok(collected)
}

/// A store, and its files that must stay.
struct Sweep {
    store: ObjectStore,
    needed: Needed,
}

impl Collector for Sweep {
    fn keep(&mut self, image: OpenWith, file: Option<(u64, u64)>) -> Result<()> {
        self.needed.add(&self.store, image, file)
    }

    fn collect(&self, dry_run: bool, tell: &mut dyn FnMut(String)) -> io::Result<Collected> {
        collect(&self.store, &self.needed, dry_run, &mut |garbage| {
            tell(match garbage {
                Garbage::Object(digest) => digest.object_path(),
                Garbage::Temporary(name) => name.clone(),
            });
        })
    }
}

/// Opens the store at `path` to remove objects from it. Fails with [`io::ErrorKind::Unsupported`]
/// for a store in which images and other files are objects too, because a list of images then does
/// not tell which objects are needed.
pub fn collector(path: &Path) -> io::Result<Box<dyn Collector>> {
    let store = ObjectStore::open(path)?;
    if let Some(entry) = store.repository()? {
        let reason = format!(
            "with {entry} beside its objects, this is a repository of composefs-rs or bootc, whose images and streams are objects too; use its own tools"
        );
        return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
    }
    let needed = Needed::default();
    Ok(Box::new(Sweep { store, needed }))
}
