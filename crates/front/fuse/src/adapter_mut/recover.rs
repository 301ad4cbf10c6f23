//! Restores a server's state from the ledger of one that has died.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;

use forerun_engine::Volume;
use forerun_vfs::{FileSystemMut, NodeId};

use super::aftermath::{Aftermath, Outdated};
use super::core::CoreMut;
use super::journal::Journal;
use super::known::{Known, Name};
use super::numbers::Numbers;
use crate::MountOptions;
use crate::ledger::{FoundInode, InheritedLedger, Table, resolve};

/// Inode number of the root.
const ROOT: u64 = 1;

impl CoreMut {
    /// Creates the core for `volume`, which was opened anew, in place of the server that wrote the
    /// ledger. Also returns the entries that the kernel is to drop.
    ///
    /// # Errors
    /// Those of the ledger.
    pub fn recover(
        volume: Arc<Volume>,
        options: &MountOptions,
        ledger: InheritedLedger,
    ) -> io::Result<(Self, Outdated)> {
        let root = volume.fs().root();
        let old = ledger.table();
        // What fails to be looked up is lost.
        let mut lookup =
            |dir: NodeId, name: &[u8]| volume.fs().lookup(dir, name).unwrap_or_default();
        let mut found = resolve(old, (ROOT, root), &mut lookup);
        spell(old, &mut found, volume.fs());
        let table = succeed(old, &found);
        let outdated = outdated(old, &found);
        let known = old.entries.iter().map(|(&number, entry)| {
            let found = found.get(&number).map(|found| found.node);
            (number, found.ok_or(entry.times))
        });
        let numbers = Numbers::inherited(root, known);
        tracing::info!(
            known = old.entries.len(),
            lost = old.entries.len() - found.len(),
            changed = table.lost.len(),
            "the kernel's inodes were looked up again"
        );
        let aftermath = Aftermath::new(table.server, table.lost.clone());
        let ledger = ledger.go_on(table)?;
        let (table, fs) = (ledger.table(), volume.fs());
        let known = known_again(table, &found, &numbers, fs);
        let mut core = Self::new(volume, options, Journal::new(ledger));
        (core.known, core.numbers, core.aftermath) = (known, numbers, aftermath);
        Ok((core, outdated))
    }
}

/// Replaces each found name by the spelling that the kernel knows, if both fold to the same form.
fn spell(old: &Table, found: &mut HashMap<u64, FoundInode>, fs: &dyn FileSystemMut) {
    for (number, found) in found {
        let entry = old.entries.get(number);
        if let Some((parent, name)) = entry.and_then(|entry| entry.name.as_ref())
            && *parent == found.name.0
            && fs.fold_name(name) == fs.fold_name(&found.name.1)
        {
            found.name.1 = name.clone();
        }
    }
}

/// Creates the table of the next server: each node that was found has the name that it was found by.
fn succeed(old: &Table, found: &HashMap<u64, FoundInode>) -> Table {
    let server = old.server + 1;
    let mut table = Table {
        entries: old.entries.clone(),
        lost: old.lost.clone(),
        epoch: old.epoch + 1,
        server,
        ..Table::default()
    };
    for (number, entry) in &mut table.entries {
        entry.name = found.get(number).map(|found| found.name.clone());
        if entry.name.is_none() {
            table.lost.insert(*number, server);
        }
    }
    let directories = old.slots.keys().map(|slot| slot.0);
    let lost: Vec<u64> = old.wrote.keys().copied().chain(directories).collect();
    table
        .lost
        .extend(lost.into_iter().map(|number| (number, server)));
    table
        .lost
        .retain(|number, _| *number == ROOT || table.entries.contains_key(number));
    if table.lost.values().any(|since| *since == server) {
        table.lost.insert(ROOT, server);
    }
    table
}

/// Returns the entries of the kernel's caches that may be wrong.
fn outdated(old: &Table, found: &HashMap<u64, FoundInode>) -> Outdated {
    let mut inodes: HashSet<u64> = old.wrote.keys().copied().collect();
    let mut names: HashSet<(u64, Vec<u8>)> = HashSet::new();
    for ((parent, form), changing) in &old.slots {
        inodes.insert(*parent);
        inodes.extend(&changing.occupants);
        names.insert((*parent, form.to_vec()));
    }
    for (number, entry) in &old.entries {
        let is_lost = !found.contains_key(number);
        if is_lost {
            inodes.insert(*number);
        }
        if let Some((parent, name)) = &entry.name
            && (is_lost || inodes.contains(number))
        {
            names.insert((*parent, name.to_vec()));
        }
    }
    let is_directory = |number: &u64| {
        *number == ROOT
            || old
                .entries
                .get(number)
                .is_some_and(|entry| entry.is_directory)
    };
    let (directories, files) = inodes.into_iter().partition(is_directory);
    Outdated {
        names: names.into_iter().collect(),
        files,
        directories,
    }
}

/// Rebuilds the table of what the kernel was told, for the nodes that were found, and opens those
/// again that are open.
fn known_again(
    table: &Table,
    found: &HashMap<u64, FoundInode>,
    numbers: &Numbers,
    fs: &dyn FileSystemMut,
) -> Known {
    let known = Known::default();
    let folds_case = fs.volume().folds_case;
    for (number, found) in found {
        let Some(entry) = table.entries.get(number) else {
            continue;
        };
        let name = folds_case.then(|| Name {
            dir: numbers.node(found.name.0),
            name: found.name.1.clone(),
        });
        known.inherit(found.node, name, entry.times, entry.opens);
        for _ in 0..entry.opens {
            if let Err(error) = fs.open(found.node) {
                tracing::error!(node = found.node.0, "opening a file again: {error}");
                break;
            }
        }
    }
    known
}
