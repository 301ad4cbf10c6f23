//! Snapshot records in memory and on disk.
//!
//! Each record is one file, replaced atomically: written to a temporary file, synced, renamed.
//! After a crash a file has the old or the new record. The disk is changed before memory, so an
//! answer never reports what a restart would not find.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use crate::place::{ids, sync_names};
use crate::record::{Id, Kind, Snapshot};
use crate::{Error, Result};

/// Maximum length of a record. Its labels come in a message of at most 4 MiB and grow when encoded
/// as JSON.
const MAX_RECORD: u64 = 32 << 20;
const ENDING: &str = ".json";

#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    snapshots: BTreeMap<Id, Snapshot>,
    names: HashMap<String, Id>,
    next: u64,
}

impl Store {
    pub fn open(dir: PathBuf) -> Result<Self> {
        let mut store = Self {
            names: HashMap::new(),
            snapshots: BTreeMap::new(),
            next: 1,
            dir,
        };
        store.remove_unfinished()?;
        for id in ids(&store.dir, ENDING)? {
            let path = store.path(id);
            let snapshot = read(&path)?;
            let damaged = |reason: &str| Error::Record {
                path: path.clone(),
                reason: reason.to_owned(),
            };
            if snapshot.id != id {
                return Err(damaged("it belongs to another snapshot than its name says"));
            }
            // A parent's ID must be smaller, so that chains of parents end.
            if snapshot.parent.is_some_and(|parent| parent >= id) {
                return Err(damaged("its parent is not older"));
            }
            if store.names.insert(snapshot.name.clone(), id).is_some() {
                return Err(damaged("another record has the same name"));
            }
            store.snapshots.insert(id, snapshot);
            store.skip(&[id])?;
        }
        let parents = store.snapshots.values().filter_map(|it| it.parent);
        if let Some(missing) = parents.into_iter().find(|id| store.get(*id).is_none()) {
            return Err(Error::Record {
                path: store.path(missing),
                reason: "it is missing, but it is the parent of a snapshot".to_owned(),
            });
        }
        Ok(store)
    }

    fn remove_unfinished(&self) -> Result<()> {
        for entry in fs::read_dir(&self.dir).map_err(Error::io(&self.dir))? {
            let path = entry.map_err(Error::io(&self.dir))?.path();
            if path.extension().is_none_or(|ending| ending != "json") {
                fs::remove_file(&path).map_err(Error::io(&path))?;
            }
        }
        Ok(())
    }

    fn path(&self, id: Id) -> PathBuf {
        self.dir.join(format!("{id}{ENDING}"))
    }

    /// Returns an unused ID, greater than all IDs used before.
    pub fn next_id(&mut self) -> Id {
        let id = Id(self.next);
        self.next += 1;
        id
    }

    /// Marks these IDs as used: new snapshots get greater ones.
    pub fn skip(&mut self, used: &[Id]) -> Result<()> {
        if let Some(last) = used.iter().max() {
            let next = last.0.checked_add(1).ok_or_else(|| Error::Record {
                path: self.path(*last),
                reason: "no number comes after its own".to_owned(),
            })?;
            self.next = self.next.max(next);
        }
        Ok(())
    }

    pub fn get(&self, id: Id) -> Option<&Snapshot> {
        self.snapshots.get(&id)
    }

    pub fn named(&self, name: &str) -> Result<&Snapshot> {
        self.find(name)
            .ok_or_else(|| Error::NotFound(name.to_owned()))
    }

    pub fn find(&self, name: &str) -> Option<&Snapshot> {
        self.snapshots.get(self.names.get(name)?)
    }

    /// Returns all snapshots, oldest first.
    pub fn all(&self) -> impl Iterator<Item = &Snapshot> {
        self.snapshots.values()
    }

    /// Returns the snapshot's ancestors, nearest first.
    pub fn ancestors(&self, snapshot: &Snapshot) -> impl Iterator<Item = &Snapshot> {
        let parent = snapshot.parent.and_then(|id| self.get(id));
        std::iter::successors(parent, |it| it.parent.and_then(|id| self.get(id)))
    }

    /// Returns the nearest ancestor that is a mounted layer; its chain must be mounted for this
    /// snapshot.
    pub fn chain_below(&self, snapshot: &Snapshot) -> Option<&Snapshot> {
        self.ancestors(snapshot).find(|it| it.layer.is_some())
    }

    /// Returns whether an active snapshot or a view needs the mount of this chain.
    pub fn is_chain_used(&self, chain: Id) -> bool {
        let mut in_use = self.all().filter(|it| it.kind != Kind::Committed);
        in_use.any(|it| self.chain_below(it).is_some_and(|below| below.id == chain))
    }

    /// Stores a new snapshot or a new version of an existing record.
    pub fn put(&mut self, snapshot: Snapshot) -> Result<()> {
        if let Some(other) = self.find(&snapshot.name)
            && other.id != snapshot.id
        {
            return Err(Error::Exists(snapshot.name));
        }
        let path = self.path(snapshot.id);
        write(&self.dir, &path, &snapshot).map_err(Error::io(&path))?;
        if let Some(old) = self.snapshots.get(&snapshot.id) {
            self.names.remove(&old.name);
        }
        self.names.insert(snapshot.name.clone(), snapshot.id);
        self.snapshots.insert(snapshot.id, snapshot);
        Ok(())
    }

    pub fn remove(&mut self, id: Id) -> Result<()> {
        let path = self.path(id);
        let removed = fs::remove_file(&path).and_then(|()| sync_names(&self.dir));
        removed.map_err(Error::io(&path))?;
        if let Some(old) = self.snapshots.remove(&id) {
            self.names.remove(&old.name);
        }
        Ok(())
    }
}

fn read(path: &Path) -> Result<Snapshot> {
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(Error::io(path))?;
    let read = file.take(MAX_RECORD).read_to_end(&mut bytes);
    read.map_err(Error::io(path))?;
    serde_json::from_slice(&bytes).map_err(|error| Error::Record {
        path: path.to_owned(),
        reason: error.to_string(),
    })
}

fn write(dir: &Path, path: &Path, snapshot: &Snapshot) -> io::Result<()> {
    let mut file = tempfile::NamedTempFile::new_in(dir)?;
    file.write_all(&serde_json::to_vec(snapshot)?)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    sync_names(dir)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use forerun_testkit::temp_dir;

    use super::*;
    use crate::record::{Moment, Usage};

    fn snapshot(id: u64, name: &str, parent: Option<u64>) -> Snapshot {
        Snapshot {
            id: Id(id),
            name: name.to_owned(),
            parent: parent.map(Id),
            kind: Kind::Committed,
            labels: BTreeMap::from([("a".to_owned(), "b".to_owned())]),
            created: Moment::now(),
            updated: Moment::now(),
            usage: Usage::default(),
            layer: None,
        }
    }

    #[test]
    fn records_are_there_after_a_restart_and_names_are_unique() {
        let dir = temp_dir("snapshot-records");
        let open = || Store::open(dir.path().to_path_buf());
        let mut store = open().unwrap();
        assert_eq!((store.next_id(), store.next_id()), (Id(1), Id(2)));
        let (low, up) = (snapshot(1, "low", None), snapshot(2, "up", Some(1)));
        store.put(low.clone()).unwrap();
        store.put(up.clone()).unwrap();
        let taken = store.put(snapshot(3, "low", None));
        assert!(matches!(taken, Err(Error::Exists(_))));
        store
            .put(Snapshot {
                name: "renamed".to_owned(),
                ..up.clone()
            })
            .unwrap();
        // Simulates a temporary file of a killed process.
        fs::write(dir.path().join(".tmpX"), "{").unwrap();
        let mut store = open().unwrap();
        assert_eq!(store.named("low").unwrap(), &low);
        let renamed = store.named("renamed").unwrap();
        assert_eq!(store.ancestors(renamed).count(), 1);
        assert!(matches!(store.named("up"), Err(Error::NotFound(_))));
        assert_eq!(store.next_id(), Id(3));
        store.remove(Id(2)).unwrap();
        assert!(matches!(store.named("renamed"), Err(Error::NotFound(_))));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn damaged_records_are_refused_by_name() {
        let good = |id, parent| serde_json::to_string(&snapshot(id, "x", parent)).unwrap();
        for (file, text, reason) in [
            ("1.json", "{".to_owned(), "EOF"),
            ("1.json", good(2, None), "another snapshot"),
            ("7.json", good(7, Some(7)), "not older"),
            ("7.json", good(7, Some(3)), "missing"),
            (
                "18446744073709551615.json",
                good(u64::MAX, None),
                "no number",
            ),
        ] {
            let dir = temp_dir("damaged-records");
            fs::write(dir.path().join(file), text).unwrap();
            let error = Store::open(dir.path().to_path_buf()).unwrap_err();
            assert!(error.to_string().contains(reason), "{error}");
        }
    }
}
