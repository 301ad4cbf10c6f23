//! Directories whose next fsync(2) must report lost changes, now or if this process dies.
//!
//! If a server dies, unwritten changes of names are lost, and the next fsync(2) of the directory
//! must fail. The kernel may have forgotten the directory by then. So a directory is kept, and
//! recorded for the next server, until its last change is on the device and it has reported. Its
//! parents are kept too, because the next server finds it by path.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard};

use forerun_io::Unpoisoned;
use forerun_vfs::NodeId;

#[derive(Debug, Default)]
pub struct Reports {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Directories that must still report that a server died.
    unreported: HashSet<NodeId>,
    /// Directories with changed names, each with the number of the commit that writes the change.
    unwritten: HashMap<NodeId, u64>,
    /// Number of kept directories in each directory.
    kept_in: HashMap<NodeId, u64>,
    next: u64,
}

impl Reports {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unpoisoned()
    }

    /// Records that the next fsync(2) of `dir` must report the death of an earlier server.
    pub fn await_report(&self, dir: NodeId) {
        self.state().unreported.insert(dir);
    }

    pub fn is_unreported(&self, dir: NodeId) -> bool {
        self.state().unreported.contains(&dir)
    }

    /// Marks a directory as reported. Returns whether it had anything to report.
    pub fn report(&self, dir: NodeId) -> bool {
        self.state().unreported.remove(&dir)
    }

    pub fn changed(&self, dir: NodeId) {
        let mut state = self.state();
        let commit = state.next;
        state.unwritten.insert(dir, commit);
    }

    pub fn begin_commit(&self) -> u64 {
        let mut state = self.state();
        state.next += 1;
        state.next - 1
    }

    /// Records that a commit has succeeded. Returns the directories that it has written.
    pub fn written(&self, commit: u64) -> Vec<NodeId> {
        let unwritten = &mut self.state().unwritten;
        let written = unwritten.extract_if(|_, changed_before| *changed_before <= commit);
        written.map(|(dir, _)| dir).collect()
    }

    /// Records that a subdirectory of `dir` is kept although the kernel has forgotten it.
    pub fn keep_in(&self, dir: NodeId) {
        *self.state().kept_in.entry(dir).or_default() += 1;
    }

    /// Records that a subdirectory of `dir` is no longer kept.
    pub fn leave(&self, dir: NodeId) {
        if let Entry::Occupied(mut count) = self.state().kept_in.entry(dir) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    /// Returns whether a directory must be kept when the kernel forgets it.
    pub fn is_kept(&self, dir: NodeId) -> bool {
        let state = self.state();
        state.unreported.contains(&dir)
            || state.unwritten.contains_key(&dir)
            || state.kept_in.contains_key(&dir)
    }

    pub fn remove(&self, dir: NodeId) {
        let mut state = self.state();
        state.unreported.remove(&dir);
        state.unwritten.remove(&dir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_kept_until_the_commit_behind_its_last_change() {
        let (reports, dir) = (Reports::default(), NodeId(7));
        reports.changed(dir);
        let first = reports.begin_commit();
        // The change may come too late for the commit in progress.
        reports.changed(dir);
        assert_eq!(reports.written(first), []);
        assert!(reports.is_kept(dir));
        let failed = reports.begin_commit();
        let third = reports.begin_commit();
        assert!(failed < third);
        assert_eq!(reports.written(third), [dir]);
        assert!(!reports.is_kept(dir));
    }
}
