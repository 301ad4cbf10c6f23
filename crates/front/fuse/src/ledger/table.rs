//! The sum of the records of a ledger.

use std::collections::{BTreeSet, HashMap};

use super::record::Record;

/// A name: the number of its directory, and its form, which all spellings of it share.
pub type NameSlot = (u64, Box<[u8]>);

/// An inode number that the kernel knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownInode {
    /// The number of its directory, and the name as it was last spelled; nothing where it has none.
    pub name: Option<(u64, Box<[u8]>)>,
    pub is_directory: bool,
    /// How many answers have named it that the kernel has not forgotten. Never too few.
    pub times: u64,
    /// How many times it is open. Never too few.
    pub opens: u64,
}

/// A name that changes under way concern.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changing {
    /// The inodes that have had it since the last commit, or are to get it.
    pub occupants: Vec<u64>,
    /// The epoch of the last change.
    pub epoch: u64,
}

/// The state of a ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    pub entries: HashMap<u64, KnownInode>,
    /// Names that are not durable as they are.
    pub slots: HashMap<NameSlot, Changing>,
    /// Inodes that were made since the last commit, and when.
    pub made: HashMap<u64, u64>,
    /// Inodes with contents or attributes that are not durable, and since when.
    pub wrote: HashMap<u64, u64>,
    /// Inodes whose changes were lost, for openings by servers before this one.
    pub lost: HashMap<u64, u64>,
    /// Rises with each commit that begins.
    pub epoch: u64,
    /// Servers that the mount had before.
    pub server: u64,
}

impl Table {
    /// Takes a record into account.
    pub fn apply(&mut self, record: &Record) {
        match record {
            Record::Told {
                number,
                parent,
                times,
                is_directory,
                name,
            } => {
                let entry = self.entries.entry(*number).or_default();
                entry.times = entry.times.saturating_add(*times);
                entry.is_directory = *is_directory;
                // The kernel keeps the last name of a directory, and of a file the first.
                if *is_directory || entry.name.is_none() {
                    entry.name = Some((*parent, name.clone().into()));
                }
            }
            Record::Forgot { number, times } => self.forget(*number, *times),
            Record::Opened { number, times } => {
                if let Some(entry) = self.entries.get_mut(number) {
                    entry.opens = entry.opens.saturating_add(*times);
                }
            }
            Record::Closed { number } => {
                if let Some(entry) = self.entries.get_mut(number) {
                    entry.opens = entry.opens.saturating_sub(1);
                }
            }
            Record::Named {
                number,
                parent,
                name,
            } => {
                if let Some(entry) = self.entries.get_mut(number) {
                    entry.name = Some((*parent, name.clone().into()));
                }
            }
            Record::Nameless { number } => {
                if let Some(entry) = self.entries.get_mut(number) {
                    entry.name = None;
                }
            }
            Record::At {
                number,
                parent,
                form,
            } => self.place(*number, (*parent, form.clone().into())),
            Record::Made { number } => drop(self.made.insert(*number, self.epoch)),
            Record::Wrote { number } => drop(self.wrote.insert(*number, self.epoch)),
            Record::Epoch { epoch } => self.epoch = *epoch,
            Record::Committed { epoch } => self.commit(*epoch),
            Record::Server { count } => self.server = *count,
            Record::Lost { number, server } => drop(self.lost.insert(*number, *server)),
            Record::Reported { number } => drop(self.lost.remove(number)),
        }
    }

    fn forget(&mut self, number: u64, times: u64) {
        let Some(entry) = self.entries.get_mut(&number) else {
            return;
        };
        entry.times = entry.times.saturating_sub(times);
        if entry.times == 0 {
            self.entries.remove(&number);
            self.made.remove(&number);
            self.wrote.remove(&number);
            self.lost.remove(&number);
        }
    }

    fn place(&mut self, number: u64, slot: NameSlot) {
        let changing = self.slots.entry(slot).or_default();
        if !changing.occupants.contains(&number) {
            changing.occupants.push(number);
        }
        changing.epoch = self.epoch;
    }

    fn commit(&mut self, epoch: u64) {
        self.slots.retain(|_, changing| changing.epoch > epoch);
        self.made.retain(|_, since| *since > epoch);
        self.wrote.retain(|_, since| *since > epoch);
    }

    /// Returns the records that add up to this.
    pub fn records(&self) -> Vec<Record> {
        let mut records = vec![Record::Server { count: self.server }];
        for (&number, entry) in &self.entries {
            let (parent, name) = entry.name.clone().unwrap_or_default();
            records.push(Record::Told {
                number,
                parent,
                times: entry.times,
                is_directory: entry.is_directory,
                name: name.into(),
            });
            if entry.name.is_none() {
                records.push(Record::Nameless { number });
            }
            if entry.opens > 0 {
                let times = entry.opens;
                records.push(Record::Opened { number, times });
            }
        }
        let lost = self.lost.iter();
        records.extend(lost.map(|(&number, &server)| Record::Lost { number, server }));
        self.changes(&mut records);
        let epoch = self.epoch;
        records.push(Record::Epoch { epoch });
        records
    }

    /// Adds records of the changes that are not durable, epoch by epoch.
    fn changes(&self, records: &mut Vec<Record>) {
        let slots = self.slots.values().map(|changing| changing.epoch);
        let others = self.made.values().chain(self.wrote.values()).copied();
        let epochs: BTreeSet<u64> = slots.chain(others).collect();
        for epoch in epochs {
            records.push(Record::Epoch { epoch });
            for ((parent, form), changing) in &self.slots {
                let (parent, is_now) = (*parent, changing.epoch == epoch);
                for &number in changing.occupants.iter().filter(|_| is_now) {
                    records.push(Record::At {
                        number,
                        parent,
                        form: form.to_vec(),
                    });
                }
            }
            let now = |since: &&u64| **since == epoch;
            for (&number, _) in self.wrote.iter().filter(|(_, since)| now(since)) {
                records.push(Record::Wrote { number });
            }
            for (&number, _) in self.made.iter().filter(|(_, since)| now(since)) {
                records.push(Record::Made { number });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(number: u64, name: &str) -> Record {
        Record::Told {
            number,
            parent: 1,
            times: 1,
            is_directory: false,
            name: name.into(),
        }
    }

    fn at(number: u64, name: &str) -> Record {
        Record::At {
            number,
            parent: 1,
            form: name.into(),
        }
    }

    fn table(records: &[Record]) -> Table {
        let mut table = Table::default();
        records.iter().for_each(|record| table.apply(record));
        table
    }

    #[test]
    fn the_records_of_a_table_add_up_to_it() {
        let table = table(&[
            Record::Server { count: 3 },
            told(7, "a"),
            told(8, "b"),
            told(8, "B"),
            told(9, "c"),
            Record::Opened {
                number: 8,
                times: 2,
            },
            Record::Nameless { number: 9 },
            at(8, "B"),
            Record::Epoch { epoch: 1 },
            Record::Wrote { number: 7 },
            at(9, "C"),
            Record::Made { number: 9 },
            Record::Lost {
                number: 7,
                server: 2,
            },
            Record::Epoch { epoch: 2 },
        ]);
        let mut again = Table::default();
        table
            .records()
            .iter()
            .for_each(|record| again.apply(record));
        assert_eq!(again, table);
        assert_eq!(table.entries[&8].times, 2);
        assert_eq!(table.slots.len(), 2);
    }

    #[test]
    fn a_commit_ends_what_was_changed_before_it_began() {
        let mut table = table(&[
            at(7, "A"),
            Record::Wrote { number: 7 },
            Record::Made { number: 7 },
            Record::Epoch { epoch: 1 },
            at(8, "B"),
            Record::Wrote { number: 8 },
        ]);
        table.apply(&Record::Committed { epoch: 0 });
        assert_eq!(table.slots.keys().next().unwrap().1, b"B"[..].into());
        assert_eq!((table.slots.len(), table.wrote.len()), (1, 1));
        assert!(table.made.is_empty());
        table.apply(&Record::Committed { epoch: 1 });
        assert!(table.slots.is_empty() && table.wrote.is_empty());
    }

    #[test]
    fn what_is_forgotten_is_gone() {
        let mut table = table(&[
            told(7, "a"),
            told(7, "a"),
            Record::Wrote { number: 7 },
            Record::Lost {
                number: 7,
                server: 1,
            },
        ]);
        table.apply(&Record::Forgot {
            number: 7,
            times: 1,
        });
        assert_eq!(table.entries.len(), 1);
        table.apply(&Record::Forgot {
            number: 7,
            times: 1,
        });
        assert_eq!(table, Table::default());
    }
}
