//! The ledger: what a server has told the kernel of a volume, kept where it survives the server.
//!
//! A volume that is written to has state in its server: which inode number is which file, which files
//! are open, and which changes are not on the device. The ledger is a file in memory that the keeper
//! holds too. The server appends a record before it sends an answer that the kernel relies on, and the
//! next server reads the sum of the records. A record that may be missing (the end of an opening, a
//! forgotten inode) waits for the next one that may not: the ledger may count too many, never too few.
//!
//! Records have checksums, so one that was cut short when the server was killed marks the end. When the
//! file has grown to several times its contents, the sum is appended and the first page made to point
//! there. Two pointers take turns in that, so that one of them is always whole.
//!
//! A mount of an image that keeps data in files of the host has a [table](Registered) of fixed slots
//! instead: its next server only needs to know which of these files the kernel reads by itself.
//!
//! Nothing here knows FUSE or a driver.

mod record;
mod registered;
mod resolve;
mod table;

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};

pub use record::Record;
pub use registered::{HostFile, Registered, Registration, RegistrationSlot};
pub use resolve::{FoundInode, resolve};
pub use table::Table;

/// The first page: two pointers to where records begin.
const HEAD: u64 = 4096;
/// From one pointer to the other.
const POINTER: u64 = 64;
/// Bytes of records below which they are not summed up.
const SMALL: u64 = 1 << 20;
/// Sum up when the records take so many times the length of the last sum.
const GROWTH: u64 = 4;

/// The file of a new ledger. A process in a sandbox can create no such file.
#[derive(Clone, Debug)]
pub struct LedgerFile(Arc<OwnedFd>);

impl LedgerFile {
    /// Makes one.
    ///
    /// # Errors
    /// Those of memfd_create(2).
    pub fn new() -> io::Result<Self> {
        let file = memfd_create("forerun-ledger", MemfdFlags::CLOEXEC)?;
        Ok(Self(Arc::new(file)))
    }
}

impl PartialEq for LedgerFile {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for LedgerFile {}

/// A ledger that is written to.
#[derive(Debug)]
pub struct Ledger {
    file: File,
    table: Table,
    /// Records that are not in the file yet.
    waiting: Vec<u8>,
    /// Where the records begin and end.
    start: u64,
    end: u64,
    /// Length of the last sum.
    sum: u64,
    /// Number of the pointer.
    turn: u64,
    has_failed: bool,
}

impl Ledger {
    /// Makes an empty one.
    ///
    /// # Errors
    /// Those of dup(2) and of writing.
    pub fn new(file: &LedgerFile) -> io::Result<Self> {
        let file = File::from(file.0.try_clone()?);
        Self::begin(file, Table::default(), 0, 0)
    }

    /// Reads one that another process has written, and goes on with `change` of what it says.
    ///
    /// # Errors
    /// Those of the file; `InvalidData` where there are no records.
    pub fn inherit(file: OwnedFd) -> io::Result<InheritedLedger> {
        let file = File::from(file);
        let (turn, start) = pointer(&file)?.ok_or(io::ErrorKind::InvalidData)?;
        let len = file.metadata()?.len();
        let table = read(&file, start, len)?;
        Ok(InheritedLedger {
            file,
            table,
            turn,
            len,
        })
    }

    fn begin(file: File, table: Table, turn: u64, len: u64) -> io::Result<Self> {
        let mut ledger = Self {
            file,
            table,
            waiting: Vec::new(),
            start: HEAD,
            end: len.max(HEAD),
            sum: 0,
            turn,
            has_failed: false,
        };
        ledger.sum_up()?;
        Ok(ledger)
    }

    /// Makes another descriptor of the file, for the keeper.
    ///
    /// # Errors
    /// Those of dup(2).
    pub fn share(&self) -> io::Result<OwnedFd> {
        self.file.try_clone().map(OwnedFd::from)
    }

    /// Returns the sum of the records, those that wait included.
    pub const fn table(&self) -> &Table {
        &self.table
    }

    /// Adds a record, which is in the file when [`flush`](Self::flush) has returned.
    pub fn add(&mut self, record: &Record) {
        self.table.apply(record);
        record.encode(&mut self.waiting);
    }

    /// Writes pending records to the file. If that fails, the ledger is emptied, so that no process
    /// relies on it.
    pub fn flush(&mut self) {
        if self.waiting.is_empty() || self.has_failed {
            self.waiting.clear();
            return;
        }
        let written = self.file.write_all_at(&self.waiting, self.end);
        self.end += u64::try_from(self.waiting.len()).unwrap_or(u64::MAX);
        self.waiting.clear();
        let has_grown = self.end - self.start > SMALL.max(GROWTH * self.sum);
        let done = written.and_then(|()| match has_grown {
            true => self.sum_up(),
            false => Ok(()),
        });
        if let Err(error) = done {
            self.has_failed = true;
            let emptied = self.file.set_len(0);
            tracing::error!(
                ?emptied,
                "no other process can take the mount over: {error}"
            );
        }
    }

    /// Appends the sum of the records, and drops the records.
    fn sum_up(&mut self) -> io::Result<()> {
        let mut bytes = Vec::new();
        let records = self.table.records();
        records.iter().for_each(|record| record.encode(&mut bytes));
        let start = self.end.next_multiple_of(HEAD);
        self.file.write_all_at(&bytes, start)?;
        self.turn += 1;
        let mut pointer = [self.turn, start].map(u64::to_ne_bytes).concat();
        let sum = record::checksum(&pointer);
        pointer.extend_from_slice(&sum.to_ne_bytes());
        self.file
            .write_all_at(&pointer, POINTER * (self.turn % 2))?;
        self.sum = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        if start > HEAD {
            // Only memory is at stake.
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let _best_effort = fallocate(&self.file, flags, HEAD, start - HEAD);
        }
        (self.start, self.end) = (start, start + self.sum);
        Ok(())
    }
}

/// A ledger that another process has written.
#[derive(Debug)]
pub struct InheritedLedger {
    file: File,
    table: Table,
    turn: u64,
    len: u64,
}

impl InheritedLedger {
    /// Returns the sum of its records.
    pub const fn table(&self) -> &Table {
        &self.table
    }

    /// Continues the ledger from `table`. Until that is in the file, the file keeps its old contents.
    ///
    /// # Errors
    /// Those of the file.
    pub fn go_on(self, table: Table) -> io::Result<Ledger> {
        Ledger::begin(self.file, table, self.turn, self.len)
    }
}

/// Returns the number of the last pointer, and where it points.
fn pointer(file: &File) -> io::Result<Option<(u64, u64)>> {
    let mut last = None;
    for at in [0, POINTER] {
        let mut bytes = [0; 24];
        match file.read_exact_at(&mut bytes, at) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => continue,
            read => read?,
        }
        let (pointer, sum) = bytes.split_at(16);
        if record::checksum(pointer).to_ne_bytes() != sum {
            continue;
        }
        let (turn, start) = pointer.split_at(8);
        let number = |bytes: &[u8]| bytes.try_into().map(u64::from_ne_bytes);
        if let (Ok(turn), Ok(start)) = (number(turn), number(start)) {
            last = last.max(Some((turn, start)));
        }
    }
    Ok(last)
}

fn read(file: &File, start: u64, end: u64) -> io::Result<Table> {
    let len = usize::try_from(end.saturating_sub(start)).map_err(io::Error::other)?;
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, start)?;
    let (mut rest, mut table) = (&bytes[..], Table::default());
    while let Some(record) = Record::take(&mut rest) {
        table.apply(&record);
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(number: u64) -> Record {
        Record::Told {
            number,
            parent: 1,
            times: 1,
            is_directory: false,
            name: format!("file {number}").into(),
        }
    }

    fn inherited(ledger: &Ledger) -> io::Result<Table> {
        Ledger::inherit(ledger.share()?).map(|inherited| inherited.table)
    }

    #[test]
    fn what_is_flushed_is_inherited() {
        let mut ledger = Ledger::new(&LedgerFile::new().unwrap()).unwrap();
        assert_eq!(inherited(&ledger).unwrap(), Table::default());
        ledger.add(&told(7));
        assert_eq!(inherited(&ledger).unwrap(), Table::default());
        ledger.flush();
        assert_eq!(inherited(&ledger).unwrap(), *ledger.table());
        let mut table = ledger.table().clone();
        table.server = 5;
        let next = Ledger::inherit(ledger.share().unwrap()).unwrap();
        let mut next = next.go_on(table).unwrap();
        next.add(&told(8));
        next.flush();
        let last = inherited(&ledger).unwrap();
        assert_eq!((last.server, last.entries.len()), (5, 2));
    }

    #[test]
    fn a_ledger_cut_anywhere_has_the_records_before() {
        let mut ledger = Ledger::new(&LedgerFile::new().unwrap()).unwrap();
        let begin = ledger.end;
        let mut ends = vec![(begin, ledger.table().clone())];
        for number in 0..10 {
            ledger.add(&told(number));
            ledger.add(&Record::Wrote { number });
            ledger.flush();
            ends.push((ledger.end, ledger.table().clone()));
        }
        for cut in (begin..=ledger.end).rev() {
            ledger.file.set_len(cut).unwrap();
            let table = inherited(&ledger).unwrap();
            let (_, whole) = ends.iter().rfind(|(end, _)| *end <= cut).unwrap();
            let mut next = whole.clone();
            let number = u64::try_from(whole.entries.len()).unwrap();
            next.apply(&told(number));
            assert!(table == *whole || table == next, "{cut}");
        }
        // Cut in the sum that every ledger begins with, there is less and no more.
        for cut in 0..begin {
            ledger.file.set_len(cut).unwrap();
            let table = inherited(&ledger);
            assert!(table.is_err() || table.is_ok_and(|table| table.entries.is_empty()));
        }
    }

    #[test]
    fn a_ledger_is_no_larger_than_a_few_times_what_it_says() {
        let mut ledger = Ledger::new(&LedgerFile::new().unwrap()).unwrap();
        for number in 0..40_000 {
            ledger.add(&told(number));
            ledger.add(&Record::Forgot { number, times: 1 });
            ledger.flush();
        }
        ledger.add(&told(7));
        ledger.flush();
        assert_eq!(inherited(&ledger).unwrap(), *ledger.table());
        assert!(ledger.turn > 2);
        let blocks = rustix::fs::fstat(&ledger.file).unwrap().st_blocks;
        assert!(
            u64::try_from(blocks).unwrap() * 512 <= SMALL + 64 * HEAD,
            "{blocks}"
        );
    }

    #[test]
    fn a_sum_that_was_cut_short_leaves_the_one_before() {
        let mut ledger = Ledger::new(&LedgerFile::new().unwrap()).unwrap();
        ledger.add(&told(7));
        ledger.flush();
        let before = ledger.table().clone();
        // The pointer to a second sum is cut short at each byte of it.
        let place = POINTER * ((ledger.turn + 1) % 2);
        let mut old = [0; 24];
        ledger.file.read_exact_at(&mut old, place).unwrap();
        ledger.sum_up().unwrap();
        let mut new = [0; 24];
        ledger.file.read_exact_at(&mut new, place).unwrap();
        for len in 0..=24 {
            let mixed = [&new[..len], &old[len..]].concat();
            ledger.file.write_all_at(&mixed, place).unwrap();
            let (turn, _) = pointer(&ledger.file).unwrap().unwrap();
            assert_eq!(
                turn,
                if len == 24 {
                    ledger.turn
                } else {
                    ledger.turn - 1
                }
            );
        }
        assert_eq!(inherited(&ledger).unwrap(), before);
    }
}
