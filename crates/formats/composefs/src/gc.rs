//! Removes objects that no image needs any more.

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use forerun_vfs::objects::{Collected, Collector};
use forerun_vfs::{FileSystem, FileType, Held, OpenWith, Result, Walk};

use crate::digest::Digest;
use crate::object_name::ObjectName;
use crate::overlay::REDIRECT;
use crate::store::{ObjectStore, Stored};

/// Age from which files without a name count as left behind.
const STALE: Duration = Duration::from_secs(24 * 60 * 60);

/// Bytes of the name of an object in the set, while it grows.
const NAME: usize = 4 * size_of::<ObjectName>();

/// Adds the names of the objects that an image refers to. The limits in `with` hold.
///
/// # Errors
/// The errors of opening and walking the image. No object may be collected then: the references of
/// the rest of the image are unknown.
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
        metadata.xattrs(entry.node, &mut |name, value| {
            if name == REDIRECT {
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
    /// A file that a writer left behind.
    Temporary(String),
}

/// Removes the files in `store` that are not in `needed`. With `dry_run` only reports them. No
/// process may add objects for other images meanwhile.
///
/// # Errors
/// The errors of reading or changing the store; files removed before stay removed.
pub fn collect(
    store: &ObjectStore,
    needed: &HashSet<ObjectName>,
    dry_run: bool,
    tell: &mut dyn FnMut(&Garbage),
) -> io::Result<Collected> {
    let mut found = Vec::new();
    let mut collected = Collected::default();
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let stale = now.unwrap_or_default().saturating_sub(STALE).as_secs();
    // All names first: a directory must not change while it is read.
    store.list(&mut |stored| match stored {
        Stored::Object { digest, .. } if needed.contains(&digest.into()) => collected.kept += 1,
        Stored::Object { digest, disk, .. } => {
            collected.bytes = collected.bytes.saturating_add(disk);
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

/// A store and the names of its objects that are needed.
struct Needed {
    store: ObjectStore,
    names: HashSet<ObjectName>,
}

impl Collector for Needed {
    fn keep(&mut self, image: OpenWith) -> Result<()> {
        referenced(image, &mut self.names)
    }

    fn collect(&self, dry_run: bool, tell: &mut dyn FnMut(String)) -> io::Result<Collected> {
        collect(&self.store, &self.names, dry_run, &mut |garbage| {
            tell(match garbage {
                Garbage::Object(digest) => digest.object_path(),
                Garbage::Temporary(name) => name.clone(),
            });
        })
    }
}

/// Opens the store at `path` to remove objects from it.
pub fn collector(path: &Path) -> io::Result<Box<dyn Collector>> {
    let store = ObjectStore::open(path)?;
    let names = HashSet::new();
    Ok(Box::new(Needed { store, names }))
}
