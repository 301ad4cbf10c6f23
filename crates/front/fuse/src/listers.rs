//! Decides which listings carry attributes.
//!
//! A listing with attributes makes an inode in the kernel for each entry. Programs that look at
//! every file need that: otherwise each file costs a request. For programs that only want names,
//! the inodes are most of the work. In the first directory that a thread lists, a few files are
//! listed without attributes. If the thread lists another directory without having looked up one of
//! them, it gets names until it looks up a file: of long directories, behind their first files. In
//! short ones the requests cost more than the inodes.
//!
//! The kernel keeps listings, also those of names. A later program that looks at every file would
//! then send a request for each. So once a thread looks up many files in directories that other
//! threads listed, the kernel is told to forget these listings.

use std::collections::HashSet;
use std::mem;
use std::sync::Mutex;

use forerun_io::Unpoisoned;

use crate::tuning::{
    LISTED_PROBES, LISTED_STRANGERS, LISTERS, LONG_LISTING, NAMES_ONLY, SHORT_LISTING,
};

/// Which entries of a listing get attributes. Directories always do, because they are opened next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attributes {
    All,
    /// All but the first few files.
    Probe,
    /// Those of directories only.
    None,
}

/// The threads that list directories of a mount.
#[derive(Default)]
pub struct Listers {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    threads: Vec<Lister>,
    /// Directories of which the kernel may keep a listing of names.
    names_only: HashSet<u64>,
    /// Consecutive lookups in such directories by threads that did not list them.
    strangers: u32,
}

struct Lister {
    thread: u32,
    /// The directory that the thread listed last.
    dir: u64,
    /// Whether the thread was given files of that directory without attributes.
    is_probed: bool,
    /// Files of that directory.
    files: u64,
    attributes: Attributes,
}

impl Listers {
    /// Records that a thread lists a directory, and returns what the answer should contain.
    pub fn on_listing(&self, thread: u32, dir: u64) -> Attributes {
        let mut state = self.state.lock().unpoisoned();
        let state = &mut *state;
        let threads = &mut state.threads;
        let known = threads.iter().position(|lister| lister.thread == thread);
        let at = known.unwrap_or_else(|| {
            if threads.len() >= LISTERS {
                threads.remove(0);
            }
            threads.push(Lister::new(thread, dir));
            threads.len() - 1
        });
        let lister = &mut threads[at];
        lister.begin(dir);
        if lister.attributes != Attributes::None {
            return lister.attributes;
        }
        if lister.files < SHORT_LISTING {
            return Attributes::All;
        }
        if state.names_only.len() < NAMES_ONLY {
            state.names_only.insert(dir);
        }
        Attributes::None
    }

    /// Records how many files were listed for a thread, and how many of them without attributes.
    pub fn listed(&self, thread: u32, files: u64, without: usize) {
        let mut state = self.state.lock().unpoisoned();
        let mut threads = state.threads.iter_mut();
        if let Some(lister) = threads.find(|lister| lister.thread == thread) {
            lister.files += files;
            lister.is_probed |= without > 0;
        }
    }

    /// Records that a thread has looked up a file in a directory. Returns directories whose
    /// listings the kernel should forget.
    pub fn on_lookup(&self, thread: u32, dir: u64) -> HashSet<u64> {
        let mut state = self.state.lock().unpoisoned();
        let state = &mut *state;
        let mut threads = state.threads.iter_mut();
        if let Some(lister) = threads.find(|it| (it.thread, it.dir) == (thread, dir)) {
            lister.attributes = Attributes::All;
            return HashSet::new();
        }
        if !state.names_only.contains(&dir) {
            return HashSet::new();
        }
        state.strangers += 1;
        if state.strangers < LISTED_STRANGERS {
            return HashSet::new();
        }
        state.strangers = 0;
        mem::take(&mut state.names_only)
    }
}

impl Lister {
    const fn new(thread: u32, dir: u64) -> Self {
        Self {
            thread,
            dir,
            is_probed: false,
            files: 0,
            attributes: Attributes::Probe,
        }
    }

    fn begin(&mut self, dir: u64) {
        let is_other = self.dir != dir;
        // Programs that sort a directory before they look at its files list all of it first, but
        // no more than 100,000 files.
        let is_shown = is_other || self.files > LONG_LISTING;
        if self.attributes == Attributes::Probe && self.is_probed && is_shown {
            self.attributes = Attributes::None;
        }
        if is_other {
            (self.dir, self.files, self.is_probed) = (dir, 0, false);
        }
    }
}

impl Attributes {
    /// Returns whether a file gets attributes, of which `without` in the same answer got none.
    pub const fn has_file(self, without: usize) -> bool {
        match self {
            Self::All => true,
            Self::Probe => without >= LISTED_PROBES,
            Self::None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lists a directory in two answers, and returns what the second one contains.
    fn list(listers: &Listers, thread: u32, dir: u64) -> Attributes {
        let attributes = listers.on_listing(thread, dir);
        let without = (0..SHORT_LISTING).fold(0, |without, _| {
            without + usize::from(!attributes.has_file(without))
        });
        listers.listed(thread, SHORT_LISTING, without);
        listers.on_listing(thread, dir)
    }

    #[test]
    fn short_directories_have_attributes() {
        let listers = Listers::default();
        list(&listers, 7, 1);
        assert_eq!(listers.on_listing(7, 2), Attributes::All);
        assert_eq!(listers.on_listing(7, 3), Attributes::All);
        listers.listed(7, SHORT_LISTING, 0);
        assert_eq!(listers.on_listing(7, 3), Attributes::None);
    }

    #[test]
    fn a_thread_that_lists_only_gets_names_from_the_second_directory_on() {
        let listers = Listers::default();
        assert_eq!(list(&listers, 7, 1), Attributes::Probe);
        assert_eq!(list(&listers, 7, 1), Attributes::Probe);
        assert_eq!(list(&listers, 7, 2), Attributes::None);
        assert_eq!(list(&listers, 8, 2), Attributes::Probe);
        // Until it looks up a file of the directory that it listed last.
        listers.on_lookup(7, 1);
        listers.on_lookup(8, 2);
        assert_eq!(list(&listers, 7, 3), Attributes::None);
        listers.on_lookup(7, 3);
        assert_eq!(list(&listers, 7, 4), Attributes::All);
        assert_eq!(list(&listers, 8, 4), Attributes::All);
    }

    #[test]
    fn directories_without_files_prove_nothing() {
        let listers = Listers::default();
        for dir in 0..10 {
            assert_eq!(listers.on_listing(7, dir), Attributes::Probe);
            listers.listed(7, 0, 0);
        }
    }

    #[test]
    fn a_long_directory_is_listed_by_name_in_the_end() {
        let listers = Listers::default();
        assert_eq!(listers.on_listing(7, 1), Attributes::Probe);
        listers.listed(7, LONG_LISTING, LISTED_PROBES);
        assert_eq!(listers.on_listing(7, 1), Attributes::Probe);
        listers.listed(7, 1, 0);
        assert_eq!(listers.on_listing(7, 1), Attributes::None);
    }

    #[test]
    fn listings_of_names_are_forgotten_once_another_thread_looks_up_their_files() {
        let listers = Listers::default();
        for dir in 1..5 {
            list(&listers, 7, dir);
        }
        for _ in 1..LISTED_STRANGERS {
            // The first directory was listed with attributes.
            assert!(listers.on_lookup(8, 1).is_empty());
            assert!(listers.on_lookup(8, 2).is_empty());
        }
        assert_eq!(listers.on_lookup(8, 3), HashSet::from([2, 3, 4]));
        assert!(listers.on_lookup(8, 3).is_empty());
    }

    #[test]
    fn the_oldest_of_too_many_threads_is_forgotten() {
        let listers = Listers::default();
        list(&listers, 1, 1);
        listers.on_lookup(1, 1);
        let others = 2..u32::try_from(LISTERS).unwrap() + 2;
        for thread in others {
            list(&listers, thread, 1);
        }
        assert_eq!(list(&listers, 1, 1), Attributes::Probe);
    }
}
