//! Records the state that is to outlast this process, while requests are answered. Nothing is recorded
//! where no keeper holds the mount.
//!
//! A record is in the ledger before the answer that it belongs to is sent. A change of names is
//! recorded after the driver has made it, with the epoch of that moment: a commit that begins later
//! includes it. A rename is also recorded before, since the commit of another thread may include it.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard};

use forerun_io::Unpoisoned;

use crate::ledger::{Ledger, Record};

/// The ledger, where there is one.
#[derive(Debug, Default)]
pub struct Journal(Option<Mutex<Ledger>>);

/// A commit that has begun: what was recorded until then will be durable.
#[derive(Clone, Copy, Debug)]
pub struct Commit(u64);

/// A name: the number of its directory, the bytes, and the form that all its spellings share.
pub struct Spelled<'a> {
    pub parent: u64,
    pub name: &'a [u8],
    pub form: Vec<u8>,
}

impl Journal {
    /// Creates a journal that continues this ledger.
    pub const fn new(ledger: Ledger) -> Self {
        Self(Some(Mutex::new(ledger)))
    }

    fn ledger(&self) -> Option<MutexGuard<'_, Ledger>> {
        let ledger = self.0.as_ref()?;
        Some(ledger.lock().unpoisoned())
    }

    /// Duplicates the ledger's descriptor for another process.
    pub fn share(&self) -> Option<std::io::Result<OwnedFd>> {
        self.ledger().map(|ledger| ledger.share())
    }

    /// Writes pending records to the ledger, before an answer is sent.
    pub fn flush(&self) {
        if let Some(mut ledger) = self.ledger() {
            ledger.flush();
        }
    }

    /// Records that an answer names an inode. `form` is called only while changes are not durable.
    pub fn told(
        &self,
        number: u64,
        name: (u64, &[u8]),
        is_directory: bool,
        form: impl FnOnce() -> Vec<u8>,
    ) {
        let Some(mut ledger) = self.ledger() else {
            return;
        };
        let (parent, name) = name;
        if !ledger.table().slots.is_empty() && !ledger.table().entries.contains_key(&number) {
            // Two inodes may be meant by one name until the next commit.
            let slot = (parent, form().into_boxed_slice());
            if ledger.table().slots.contains_key(&slot) {
                let form = slot.1.into();
                ledger.add(&Record::At {
                    number,
                    parent,
                    form,
                });
            }
        }
        ledger.add(&Record::Told {
            number,
            parent,
            times: 1,
            is_directory,
            name: name.to_vec(),
        });
    }

    /// Records, together with the next record, that the kernel has forgotten an inode.
    pub fn forgot(&self, number: u64, times: u64) {
        if let Some(mut ledger) = self.ledger() {
            ledger.add(&Record::Forgot { number, times });
        }
    }

    /// Records an opening.
    pub fn opened(&self, number: u64) {
        if let Some(mut ledger) = self.ledger() {
            ledger.add(&Record::Opened { number, times: 1 });
        }
    }

    /// Records the end of an opening, together with the next record. Call it after the answer: a
    /// request that was not answered is sent again.
    pub fn closed(&self, number: u64) {
        if let Some(mut ledger) = self.ledger() {
            ledger.add(&Record::Closed { number });
        }
    }

    /// Records that contents or attributes have changed.
    pub fn wrote(&self, number: u64) {
        if let Some(mut ledger) = self.ledger()
            && ledger.table().wrote.get(&number) != Some(&ledger.table().epoch)
        {
            ledger.add(&Record::Wrote { number });
            ledger.flush();
        }
    }

    /// Records that an inode was made.
    pub fn made(&self, number: u64, name: &Spelled<'_>) {
        if let Some(mut ledger) = self.ledger() {
            ledger.add(&at(number, name));
            ledger.add(&Record::Made { number });
        }
    }

    /// Records that an inode has lost its name. `durable`: the volume has none that leads to it.
    pub fn removed(&self, number: u64, name: &Spelled<'_>, durable: bool) {
        if let Some(mut ledger) = self.ledger() {
            if !durable {
                ledger.add(&at(number, name));
            }
            ledger.add(&Record::Nameless { number });
        }
    }

    /// Records that `number` is about to go from one name to another, which `replaced` may have.
    pub fn moving(&self, number: u64, names: [&Spelled<'_>; 2], replaced: Option<u64>) {
        if let Some(mut ledger) = self.ledger() {
            for name in names {
                ledger.add(&at(number, name));
            }
            if let Some(replaced) = replaced {
                ledger.add(&at(replaced, names[1]));
            }
            ledger.flush();
        }
    }

    /// Records that a file or directory has another name.
    pub fn moved(&self, number: u64, to: &Spelled<'_>) {
        if let Some(mut ledger) = self.ledger() {
            ledger.add(&Record::Named {
                number,
                parent: to.parent,
                name: to.name.to_vec(),
            });
        }
    }

    /// Notes that a commit is about to begin.
    pub fn begin(&self) -> Option<Commit> {
        let mut ledger = self.ledger()?;
        let epoch = ledger.table().epoch;
        ledger.add(&Record::Epoch { epoch: epoch + 1 });
        Some(Commit(epoch))
    }

    /// Records that a commit is complete.
    pub fn committed(&self, commit: Option<Commit>) {
        if let (Some(mut ledger), Some(Commit(epoch))) = (self.ledger(), commit) {
            ledger.add(&Record::Committed { epoch });
            ledger.flush();
        }
    }

    /// Records that a program was told that changes of `number` were lost.
    pub fn reported(&self, number: u64) {
        if let Some(mut ledger) = self.ledger() {
            ledger.add(&Record::Reported { number });
            ledger.flush();
        }
    }

    /// Returns whether there is a ledger.
    pub const fn is_kept(&self) -> bool {
        self.0.is_some()
    }
}

fn at(number: u64, name: &Spelled<'_>) -> Record {
    Record::At {
        number,
        parent: name.parent,
        form: name.form.clone(),
    }
}
