//! Which node of a volume is which inode number, after the server that told the numbers has died.
//!
//! The volume has come back to its last commit, or to a part of the next one. A name that no change
//! under way concerns leads to the inode that has it. A name that changes under way do concern leads
//! to what it finds where only one inode can be there. Where two can, an inode that was there at the
//! last commit, has not been removed since, and has none of its other names, must have this one.
//! What remains is lost: a wrong answer would show one file's bytes as another's.

use std::collections::{HashMap, HashSet};

use forerun_vfs::NodeId;

use super::table::{NameSlot, Table};

/// Where an inode was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundInode {
    pub node: NodeId,
    /// Its directory and name.
    pub name: (u64, Box<[u8]>),
}

/// Finds a name in a directory.
pub type FindName<'a> = &'a mut dyn FnMut(NodeId, &[u8]) -> Option<NodeId>;

struct Search<'a> {
    table: &'a Table,
    root: (u64, NodeId),
    /// Names of each inode that changes concern.
    slots: HashMap<u64, Vec<&'a NameSlot>>,
    found: HashMap<u64, Option<FoundInode>>,
    taken: HashSet<NodeId>,
    lookup: FindName<'a>,
}

/// Finds the inodes of `table` on a volume with this root.
pub fn resolve(
    table: &Table,
    root: (u64, NodeId),
    lookup: FindName<'_>,
) -> HashMap<u64, FoundInode> {
    let mut slots: HashMap<u64, Vec<&NameSlot>> = HashMap::new();
    for (slot, changing) in &table.slots {
        for number in &changing.occupants {
            slots.entry(*number).or_default().push(slot);
        }
    }
    let mut search = Search {
        table,
        root,
        slots,
        found: HashMap::new(),
        taken: HashSet::new(),
        lookup,
    };
    for number in table.entries.keys() {
        search.settle(*number);
    }
    search.eliminate();
    let found = search.found.into_iter();
    found
        .filter_map(|(number, found)| Some((number, found?)))
        .collect()
}

impl Search<'_> {
    /// Finds an inode, and its directories before it.
    fn settle(&mut self, number: u64) {
        let (mut path, mut begun) = (vec![number], HashSet::new());
        while let Some(&number) = path.last() {
            if self.found.contains_key(&number) {
                path.pop();
                continue;
            }
            let waits_for = self.directories(number).find(|dir| {
                *dir != self.root.0 && !self.found.contains_key(dir) && !begun.contains(dir)
            });
            begun.insert(number);
            match waits_for {
                Some(directory) => path.push(directory),
                None => {
                    let found = self.find(number);
                    self.found.insert(number, found);
                    path.pop();
                }
            }
        }
    }

    fn directories(&self, number: u64) -> impl Iterator<Item = u64> {
        let entry = self.table.entries.get(&number);
        let own = entry
            .and_then(|entry| entry.name.as_ref())
            .map(|name| name.0);
        let slots = self.slots.get(&number).map_or(&[][..], Vec::as_slice);
        own.into_iter().chain(slots.iter().map(|slot| slot.0))
    }

    fn find(&mut self, number: u64) -> Option<FoundInode> {
        let entry = self.table.entries.get(&number)?;
        let Some(slots) = self.slots.get(&number).cloned() else {
            let name = entry.name.as_ref()?;
            return self.take(name);
        };
        let own = slots.into_iter().filter(|slot| self.occupants(slot) == 1);
        let own: Vec<&NameSlot> = own.collect();
        own.into_iter().find_map(|slot| self.take(slot))
    }

    fn occupants(&self, slot: &NameSlot) -> usize {
        let changing = self.table.slots.get(slot);
        changing.map_or(0, |changing| changing.occupants.len())
    }

    /// Looks a name up. A node that was found for another inode is not found again.
    fn take(&mut self, name: &NameSlot) -> Option<FoundInode> {
        let directory = match name.0 == self.root.0 {
            true => self.root.1,
            false => self.found.get(&name.0)?.as_ref()?.node,
        };
        let node = (self.lookup)(directory, &name.1)?;
        let name = name.clone();
        self.taken.insert(node).then_some(FoundInode { node, name })
    }

    /// Finds files that were renamed over others.
    fn eliminate(&mut self) {
        let numbers: Vec<u64> = self.slots.keys().copied().collect();
        for number in numbers {
            if !matches!(self.found.get(&number), Some(None)) {
                continue;
            }
            let Some(entry) = self.table.entries.get(&number) else {
                continue;
            };
            let is_there = entry.name.is_some() && !self.table.made.contains_key(&number);
            let slots = self.slots.get(&number).cloned().unwrap_or_default();
            let mut shared = slots.into_iter().filter(|slot| self.occupants(slot) > 1);
            if let (Some(slot), None) = (shared.next(), shared.next())
                && is_there
                && !entry.is_directory
                && self.slots.get(&number).is_some_and(|slots| slots.len() > 1)
            {
                drop(shared);
                let found = self.take(slot);
                self.found.insert(number, found);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::Record;
    use super::*;

    const ROOT: u64 = 1;

    /// A series of events, applied as records.
    #[derive(Default)]
    struct Story(Table);

    impl Story {
        fn told(mut self, number: u64, parent: u64, name: &str) -> Self {
            self.0.apply(&Record::Told {
                number,
                parent,
                times: 1,
                is_directory: name.starts_with('d'),
                name: name.into(),
            });
            self
        }

        fn at(mut self, number: u64, parent: u64, name: &str) -> Self {
            let form = name.into();
            self.0.apply(&Record::At {
                number,
                parent,
                form,
            });
            self
        }

        fn made(self, number: u64, parent: u64, name: &str) -> Self {
            let mut this = self.told(number, parent, name).at(number, parent, name);
            this.0.apply(&Record::Made { number });
            this
        }

        fn renamed(self, number: u64, from: (u64, &str), to: (u64, &str)) -> Self {
            let (parent, name) = (to.0, to.1.into());
            let mut this = self.at(number, from.0, from.1).at(number, to.0, to.1);
            this.0.apply(&Record::Named {
                number,
                parent,
                name,
            });
            this
        }

        fn removed(self, number: u64, parent: u64, name: &str) -> Self {
            let mut this = self.at(number, parent, name);
            this.0.apply(&Record::Nameless { number });
            this
        }

        /// Asserts which inodes are found on a volume with these names.
        #[track_caller]
        fn finds(&self, volume: &[(u64, &str, u64)], expected: &[(u64, u64)]) {
            let mut lookup = |dir: NodeId, name: &[u8]| {
                let mut all = volume.iter();
                let found = all.find(|(of, is, _)| *of == dir.0 && is.as_bytes() == name);
                found.map(|(_, _, node)| NodeId(*node))
            };
            let found = resolve(&self.0, (ROOT, NodeId(100)), &mut lookup);
            let mut found: Vec<_> = found.iter().map(|(n, at)| (*n, at.node.0)).collect();
            found.sort_unstable();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn names_lead_through_directories() {
        let story = Story::default()
            .told(4, 3, "f")
            .told(3, 2, "d2")
            .told(2, ROOT, "d1")
            .told(5, 9, "of a directory that is not known");
        let volume = [(100, "d1", 20), (20, "d2", 30), (30, "f", 40)];
        story.finds(&volume, &[(2, 20), (3, 30), (4, 40)]);
        story.finds(&volume[..2], &[(2, 20), (3, 30)]);
        story.finds(&volume[1..], &[]);
    }

    #[test]
    fn directories_in_a_circle_are_lost() {
        let story = Story::default().told(2, 3, "d1").told(3, 2, "d2");
        story.finds(&[(100, "d1", 20)], &[]);
    }

    #[test]
    fn a_rename_is_found_on_either_side() {
        let story = Story::default().told(2, ROOT, "a");
        let story = story.renamed(2, (ROOT, "a"), (ROOT, "b"));
        story.finds(&[(100, "a", 20)], &[(2, 20)]);
        story.finds(&[(100, "b", 20)], &[(2, 20)]);
        story.finds(&[], &[]);
    }

    #[test]
    fn a_new_file_is_found_only_by_a_name_of_its_own() {
        let story = Story::default().made(2, ROOT, "a");
        story.finds(&[], &[]);
        story.finds(&[(100, "a", 20)], &[(2, 20)]);
        // Another file had the name.
        let story = Story::default().told(2, ROOT, "a").removed(2, ROOT, "a");
        story.made(3, ROOT, "a").finds(&[(100, "a", 20)], &[]);
    }

    #[test]
    fn a_removal_that_did_not_last_is_taken_back() {
        let story = Story::default().told(2, ROOT, "a").removed(2, ROOT, "a");
        story.finds(&[(100, "a", 20)], &[(2, 20)]);
        story.finds(&[], &[]);
    }

    #[test]
    fn a_file_renamed_over_another_is_found_on_either_side() {
        let story = Story::default().told(2, ROOT, "new").told(3, ROOT, "x");
        let story = story
            .at(3, ROOT, "x")
            .renamed(2, (ROOT, "new"), (ROOT, "x"))
            .removed(3, ROOT, "x");
        story.finds(&[(100, "x", 20)], &[(2, 20)]);
        // Of the two that may be there, the one that is named elsewhere is not.
        story.finds(&[(100, "new", 20), (100, "x", 30)], &[(2, 20)]);
    }

    #[test]
    fn a_new_file_renamed_over_another_is_lost() {
        let story = Story::default().told(3, ROOT, "x").made(2, ROOT, "new");
        let story = story
            .at(3, ROOT, "x")
            .renamed(2, (ROOT, "new"), (ROOT, "x"))
            .removed(3, ROOT, "x");
        story.finds(&[(100, "x", 20)], &[]);
        story.finds(&[(100, "new", 20), (100, "x", 30)], &[(2, 20)]);
    }

    #[test]
    fn two_numbers_never_share_a_node() {
        let story = Story::default().told(2, ROOT, "a").told(3, ROOT, "a");
        let mut lookup = |_: NodeId, _: &[u8]| Some(NodeId(20));
        let found = resolve(&story.0, (ROOT, NodeId(100)), &mut lookup);
        assert_eq!(found.len(), 1);
    }
}
