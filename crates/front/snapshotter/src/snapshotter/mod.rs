//! The snapshotter's operations.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::chains::Chains;
use crate::filter::Filters;
use crate::labels::{LabelFamily, NamedLayer};
use crate::manifests::Manifests;
use crate::overlay::{self, Directories, Mount};
use crate::place::{Place, ids, make_private};
use crate::record::{Id, Kind, Moment, Snapshot, Usage, check_name};
use crate::remote::{self, Wanted};
use crate::store::Store;
use crate::{Error, Images, Result, trees};

pub type Labels = BTreeMap<String, String>;

pub struct Snapshotter {
    place: Place,
    store: Mutex<Store>,
    chains: Chains,
    manifests: Manifests,
    images: Arc<dyn Images>,
    /// The label family to read; `None` reads all families.
    family: Option<LabelFamily>,
    /// Layers of removed snapshots whose cached data has not been freed yet.
    unused: Mutex<BTreeSet<String>>,
    /// Held by the one thread that deletes removed snapshots.
    deleting: Mutex<()>,
    /// Whether a thread is waiting to delete removed snapshots.
    deletion_is_due: AtomicBool,
    has_index: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    pub snapshot: Snapshot,
    /// Name of the parent, empty if there is none.
    pub parent: String,
}

impl std::fmt::Debug for Snapshotter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshotter")
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

impl Snapshotter {
    /// Opens the snapshots in `root`, creating it if needed, and removes what a killed process left
    /// behind.
    ///
    /// # Errors
    /// [`Error::Root`] if another snapshotter uses the directory; [`Error::Record`] if a record is
    /// damaged.
    pub fn open(root: &Path, images: Arc<dyn Images>) -> Result<Self> {
        let place = Place::open(root)?;
        let mut store = Store::open(place.records())?;
        // A killed process may have left directories whose IDs have no record.
        for dir in place.numbered() {
            store.skip(&ids(&dir, "")?)?;
        }
        let store = Mutex::new(store);
        let snapshotter = Self {
            place,
            store,
            chains: Chains::default(),
            manifests: Manifests::default(),
            images,
            family: None,
            unused: Mutex::default(),
            deleting: Mutex::new(()),
            deletion_is_due: AtomicBool::new(false),
            has_index: overlay::has_index(),
        };
        if let Err(error) = snapshotter.sweep() {
            tracing::warn!("what a killed process has left stays until the next cleanup: {error}");
        }
        Ok(snapshotter)
    }

    /// Reads image names only from labels of `family`.
    #[must_use]
    pub const fn with_labels(mut self, family: Option<LabelFamily>) -> Self {
        self.family = family;
        self
    }

    pub(crate) fn named_layer(&self, labels: &Labels) -> Option<NamedLayer> {
        match NamedLayer::of(labels, self.family) {
            Ok(named) => named,
            Err(reason) => {
                tracing::warn!("a layer is unpacked: {reason}");
                None
            }
        }
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates an active snapshot or a view on `parent` and returns its mounts. If the layer
    /// `named` needs no unpacking, commits it at once.
    ///
    /// # Errors
    /// [`Error::Exists`] if the layer was committed; [`Error::NotFound`] if the parent does not
    /// exist; [`Error::State`] if the parent is not committed.
    pub fn prepare(
        &self,
        key: &str,
        parent: &str,
        labels: Labels,
        kind: Kind,
        named: Option<NamedLayer>,
    ) -> Result<Vec<Mount>> {
        check_name(key)?;
        let below = {
            let store = self.store();
            if store.find(key).is_some() {
                return Err(Error::Exists(key.to_owned()));
            }
            parent_named(&store, parent)?
        };
        if let Some(named) = named.filter(|_| kind == Kind::Active) {
            let wanted = remote::wanted(&*self.images, &self.manifests, below.as_ref(), named);
            if let Some(wanted) = wanted
                && let Some(target) = self.commit_layer(wanted, parent, &labels)?
            {
                return Err(Error::Exists(target));
            }
        }
        let snapshot = self.add(key, parent, labels, kind)?;
        let mounts = self.present(&snapshot).and_then(|mounts| {
            self.adopt_root(&snapshot)?;
            Ok(mounts)
        });
        if mounts.is_err()
            && let Err(error) = self.remove(key)
        {
            tracing::warn!(key, "{error}");
        }
        mounts
    }

    /// Commits a layer without files. Returns its name, or `None` if the name belongs to a
    /// different snapshot.
    fn commit_layer(
        &self,
        wanted: Wanted,
        parent: &str,
        labels: &Labels,
    ) -> Result<Option<String>> {
        let Wanted { target, layer } = wanted;
        check_name(&target)?;
        let mut store = self.store();
        let parent = parent_named(&store, parent)?.map(|parent| parent.id);
        if let Some(other) = store.find(&target) {
            let is_same = other.layer.as_ref().is_some_and(|it| it.is_same(&layer));
            return Ok((is_same && other.parent == parent).then_some(target));
        }
        let now = Moment::now();
        let snapshot = Snapshot {
            id: store.next_id(),
            name: target.clone(),
            parent,
            kind: Kind::Committed,
            labels: labels.clone(),
            created: now,
            updated: now,
            usage: Usage::default(),
            layer: Some(layer),
        };
        store.put(snapshot)?;
        Ok(Some(target))
    }

    fn add(&self, key: &str, parent: &str, labels: Labels, kind: Kind) -> Result<Snapshot> {
        let mut store = self.store();
        if store.find(key).is_some() {
            return Err(Error::Exists(key.to_owned()));
        }
        let parent = parent_named(&store, parent)?.map(|parent| parent.id);
        let now = Moment::now();
        let snapshot = Snapshot {
            id: store.next_id(),
            name: key.to_owned(),
            parent,
            kind,
            labels,
            created: now,
            updated: now,
            usage: Usage::default(),
            layer: None,
        };
        if kind == Kind::Active || parent.is_none() {
            let (files, work) = (self.place.files(snapshot.id), self.place.work(snapshot.id));
            make_private(&work)?;
            make_private(&files)?;
            set_mode(&files, 0o755)?;
        }
        store.put(snapshot.clone())?;
        Ok(snapshot)
    }

    /// Copies owner and permissions of the parent's root directory to the new snapshot's.
    fn adopt_root(&self, snapshot: &Snapshot) -> Result<()> {
        if snapshot.kind != Kind::Active {
            return Ok(());
        }
        let Some(below) = self.lower(snapshot).into_iter().next() else {
            return Ok(());
        };
        let files = self.place.files(snapshot.id);
        let metadata = fs::metadata(&below).map_err(Error::io(&below))?;
        let owners = (Some(metadata.uid()), Some(metadata.gid()));
        std::os::unix::fs::chown(&files, owners.0, owners.1).map_err(Error::io(&files))?;
        set_mode(&files, metadata.mode() & 0o7777)
    }

    /// Returns the directories below a snapshot, topmost first. A mounted chain of layers counts as
    /// one directory.
    fn lower(&self, snapshot: &Snapshot) -> Vec<PathBuf> {
        let store = self.store();
        let mut lower = Vec::new();
        for below in store.ancestors(snapshot) {
            if below.layer.is_some() {
                lower.push(self.place.chain(below.id));
                break;
            }
            lower.push(self.place.files(below.id));
        }
        lower
    }

    /// Mounts the chain below a snapshot and returns the snapshot's mounts.
    fn present(&self, snapshot: &Snapshot) -> Result<Vec<Mount>> {
        let chain = self.store().chain_below(snapshot).cloned();
        if let Some(chain) = chain
            && let Some(layer) = &chain.layer
        {
            self.chains
                .ensure(&*self.images, &self.place, chain.id, layer)?;
        }
        let lower = self.lower(snapshot);
        let (files, work) = (self.place.files(snapshot.id), self.place.work(snapshot.id));
        let is_view = snapshot.kind == Kind::View;
        let directories = match is_view && lower.is_empty() {
            // A view without a parent is an empty directory.
            true => Directories {
                lower: vec![files],
                upper: None,
            },
            false => Directories {
                lower,
                upper: (!is_view).then_some((files, work)),
            },
        };
        Ok(overlay::mount(&directories, self.has_index)
            .into_iter()
            .collect())
    }

    /// Returns the mounts of an active snapshot or a view.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::State`] if the snapshot is committed; [`Error::Image`] if
    /// layers cannot be mounted.
    pub fn mounts(&self, key: &str) -> Result<Vec<Mount>> {
        let snapshot = self.store().named(key)?.clone();
        match snapshot.kind {
            Kind::Committed => Err(Error::state(key, "is committed and cannot be mounted")),
            Kind::Active | Kind::View => self.present(&snapshot),
        }
    }

    /// Commits a snapshot under a name, so that others can depend on it.
    ///
    /// # Errors
    /// [`Error::Exists`] if the name is in use; [`Error::NotFound`] if the key does not exist;
    /// [`Error::State`] if the snapshot is not active.
    pub fn commit(&self, name: &str, key: &str, labels: Labels) -> Result<()> {
        check_name(name)?;
        let is_active = |snapshot: &Snapshot| match snapshot.kind {
            Kind::Active => Ok(()),
            Kind::View | Kind::Committed => Err(Error::state(key, "is not writable")),
        };
        let id = {
            let store = self.store();
            let snapshot = store.named(key)?;
            is_active(snapshot)?;
            if name != key && store.find(name).is_some() {
                return Err(Error::Exists(name.to_owned()));
            }
            snapshot.id
        };
        let files = self.place.files(id);
        let usage = trees::usage(&files).map_err(Error::io(&files))?;
        let chain = {
            let mut store = self.store();
            let snapshot = store.named(key)?.clone();
            is_active(&snapshot)?;
            let chain = store.chain_below(&snapshot).map(|chain| chain.id);
            store.put(Snapshot {
                name: name.to_owned(),
                kind: Kind::Committed,
                updated: Moment::now(),
                labels,
                usage,
                ..snapshot
            })?;
            chain
        };
        chain.into_iter().for_each(|chain| self.release(chain));
        Ok(())
    }

    /// Removes a snapshot. [`Self::delete_removed`] deletes its files later.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::State`] if other snapshots depend on it.
    pub fn remove(&self, key: &str) -> Result<()> {
        let (snapshot, chain) = {
            let mut store = self.store();
            let snapshot = store.named(key)?.clone();
            if store.all().any(|it| it.parent == Some(snapshot.id)) {
                return Err(Error::state(key, "is the parent of other snapshots"));
            }
            let chain = store.chain_below(&snapshot).map(|chain| chain.id);
            store.remove(snapshot.id)?;
            self.throw_away(snapshot.id)?;
            (snapshot, chain)
        };
        match snapshot.layer {
            Some(layer) => {
                self.release(snapshot.id);
                self.unused().extend(layer.blobs().cloned());
            }
            None if snapshot.kind != Kind::Committed => {
                chain.into_iter().for_each(|chain| self.release(chain));
            }
            None => {}
        }
        Ok(())
    }

    fn release(&self, chain: Id) {
        let is_used = || self.store().is_chain_used(chain);
        self.chains
            .release(&*self.images, &self.place, chain, is_used);
    }

    fn throw_away(&self, id: Id) -> Result<()> {
        let dir = self.place.snapshot(id);
        match trees::discard(&dir, &self.place.trash()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.map_err(Error::io(&dir)),
        }
    }

    fn unused(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.unused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the caller must start a thread that deletes removed snapshots. When hundreds
    /// are removed at once, one thread deletes and only one more waits, so that threads remain for
    /// other calls.
    pub(crate) fn starts_deletion(&self) -> bool {
        !self.deletion_is_due.swap(true, Ordering::SeqCst)
    }

    /// Deletes the files of removed snapshots and the cached data of layers that no snapshot needs.
    /// Fails on files that cannot be deleted, such as immutable files (chattr(1)).
    pub fn delete_removed(&self) -> Result<()> {
        let _one = self.deleting.lock().unwrap_or_else(PoisonError::into_inner);
        self.deletion_is_due.store(false, Ordering::SeqCst);
        let trash = self.place.trash();
        let emptied = trees::empty(&trash).map_err(Error::io(&trash));
        let mut layers = std::mem::take(&mut *self.unused());
        for layer in self.store().all().filter_map(|it| it.layer.as_ref()) {
            layers.retain(|digest| layer.blobs().all(|used| used != digest));
        }
        if !layers.is_empty() {
            let left = self.images.forget(layers.into_iter().collect());
            self.unused().extend(left);
        }
        emptied
    }

    pub fn clean_up(&self) -> Result<()> {
        self.sweep()?;
        self.delete_removed()
    }

    /// Continues after an error, and returns the last error.
    fn sweep(&self) -> Result<()> {
        let mut swept = Ok(());
        {
            let store = self.store();
            for id in ids(&self.place.snapshots(), "")? {
                if store.get(id).is_none() {
                    swept = self.throw_away(id).and(swept);
                }
            }
        }
        for id in ids(&self.place.chains(), "")? {
            self.release(id);
        }
        swept
    }

    pub fn stat(&self, key: &str) -> Result<Described> {
        let store = self.store();
        store
            .named(key)
            .map(|snapshot| described(&store, snapshot.clone()))
    }

    /// Replaces all labels of a snapshot, or only the fields `labels` and `labels.NAME` in
    /// `fields`.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Request`] for a field that cannot be changed.
    pub fn update(&self, name: &str, labels: &Labels, fields: &[String]) -> Result<Described> {
        let mut store = self.store();
        let mut snapshot = store.named(name)?.clone();
        if fields.is_empty() {
            snapshot.labels = labels.clone();
        }
        for field in fields {
            match field.strip_prefix("labels.") {
                Some(label) => match labels.get(label) {
                    Some(value) => drop(snapshot.labels.insert(label.to_owned(), value.clone())),
                    None => drop(snapshot.labels.remove(label)),
                },
                None if field == "labels" => snapshot.labels = labels.clone(),
                None => {
                    let reason = format!("the field {field:?} of a snapshot cannot be changed");
                    return Err(Error::Request(reason));
                }
            }
        }
        snapshot.updated = Moment::now();
        store.put(snapshot.clone())?;
        Ok(described(&store, snapshot))
    }

    /// Returns the snapshots that match one of the filters, or all snapshots if there are no
    /// filters.
    ///
    /// # Errors
    /// [`Error::Request`] for an invalid filter.
    pub fn list(&self, filters: &[String]) -> Result<Vec<Described>> {
        let filters = Filters::parse(filters)?;
        let store = self.store();
        let all = store.all().cloned().map(|it| described(&store, it));
        Ok(all
            .filter(|it| filters.hold(|path| it.field(path)))
            .collect())
    }

    /// Returns a snapshot's own disk usage, without its ancestors. A mounted layer uses nothing:
    /// its fetched data is in the cache.
    pub fn usage(&self, key: &str) -> Result<Usage> {
        let snapshot = self.store().named(key)?.clone();
        if snapshot.kind != Kind::Active {
            return Ok(snapshot.usage);
        }
        let files = self.place.files(snapshot.id);
        trees::usage(&files).map_err(Error::io(&files))
    }
}

impl Described {
    /// Returns the value of a field path in a filter.
    fn field(&self, path: &[&str]) -> Option<String> {
        let value = match path {
            ["name"] => &self.snapshot.name,
            ["parent"] => &self.parent,
            ["kind"] => match self.snapshot.kind {
                Kind::View => "view",
                Kind::Active => "active",
                Kind::Committed => "committed",
            },
            ["labels", label @ ..] => self.snapshot.labels.get(&label.join("."))?,
            _ => return None,
        };
        Some(value.to_owned())
    }
}

/// Returns the committed parent, `None` if `name` is empty.
fn parent_named(store: &Store, name: &str) -> Result<Option<Snapshot>> {
    if name.is_empty() {
        return Ok(None);
    }
    let parent = store.named(name)?;
    match parent.kind {
        Kind::Committed => Ok(Some(parent.clone())),
        Kind::Active | Kind::View => Err(Error::state(name, "is not committed")),
    }
}

fn described(store: &Store, snapshot: Snapshot) -> Described {
    let parent = snapshot.parent.and_then(|id| store.get(id));
    let parent = parent.map_or_else(String::new, |parent| parent.name.clone());
    Described { snapshot, parent }
}

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(Error::io(path))
}

#[cfg(test)]
mod tests;
