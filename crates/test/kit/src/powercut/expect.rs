//! The trees that a crash may show.
//!
//! Every node has a window of states: from the one in which it was last made durable to the last
//! begun one. It must have a name that it had in some state of its window, and may be missing only
//! if it was missing in one of them. Its length is one of those in the window, and each of its
//! bytes was at that position in one of them. So a rename shows the old or the new name but never
//! both or none, synced files exist with their bytes, and foreign bytes are detected. Nodes are
//! identified by their contents if a name could belong to several.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::RangeInclusive;

use forerun_io::u64_from;

use super::model::{Id, Model, Promise, VolumeNode};
use super::{Found, FoundNode};

impl Model {
    /// Checks that a crash may show `found` once `begun` operations had begun and `acknowledged` of
    /// them had returned.
    pub fn allows(&self, found: &Found, begun: usize, acknowledged: usize) -> Result<(), String> {
        let windows = self.windows(begun, acknowledged);
        let mut search = Search {
            model: self,
            found,
            names: self.names_in(&windows),
            windows,
            assigned: Vec::new(),
            used: BTreeSet::new(),
            complaint: (0, String::new()),
        };
        if search.next() {
            return Ok(());
        }
        Err(search.complaint.1)
    }

    /// Returns, for each name in a directory, the nodes that had it in their window.
    fn names_in(&self, windows: &Windows) -> HashMap<(Id, &[u8]), BTreeSet<Id>> {
        let mut names: HashMap<_, BTreeSet<Id>> = HashMap::new();
        for (number, state) in self.states.iter().enumerate().skip(windows.all) {
            for (&id, node) in state {
                if windows.of_name(id).contains(&number) {
                    let name = (node.parent, &*node.name);
                    names.entry(name).or_default().insert(id);
                }
            }
        }
        names
    }

    /// Finds the first states of the windows of names and of contents, and the last state.
    fn windows(&self, begun: usize, acknowledged: usize) -> Windows {
        let mut windows = Windows {
            names: BTreeMap::new(),
            contents: BTreeMap::new(),
            all: 0,
            last: begun,
        };
        for (before, promise) in self.promises.iter().take(acknowledged).enumerate() {
            let state = before + 1;
            match promise {
                Promise::Nothing => {}
                Promise::Everything => windows.all = state,
                Promise::Node(id) => {
                    windows.names.insert(*id, state);
                    windows.contents.insert(*id, state);
                }
                Promise::Names(ids) => {
                    windows.names.extend(ids.iter().map(|&id| (id, state)));
                }
            }
        }
        windows
    }
}

struct Windows {
    names: BTreeMap<Id, usize>,
    contents: BTreeMap<Id, usize>,
    all: usize,
    last: usize,
}

impl Windows {
    fn of_name(&self, id: Id) -> RangeInclusive<usize> {
        self.all.max(self.names.get(&id).copied().unwrap_or(0))..=self.last
    }

    fn of_contents(&self, id: Id) -> RangeInclusive<usize> {
        self.all.max(self.contents.get(&id).copied().unwrap_or(0))..=self.last
    }
}

/// A search that assigns a node of the model to each found name.
struct Search<'a> {
    model: &'a Model,
    found: &'a Found,
    /// The nodes that may have each name in a directory.
    names: HashMap<(Id, &'a [u8]), BTreeSet<Id>>,
    windows: Windows,
    /// Nodes assigned to the names so far.
    assigned: Vec<Id>,
    used: BTreeSet<Id>,
    /// How many names the longest attempt had assigned, and why it stopped.
    complaint: (usize, String),
}

impl Search<'_> {
    fn next(&mut self) -> bool {
        let at = self.assigned.len();
        let Some(node) = self.found.nodes.get(at) else {
            return self.all_there();
        };
        let parent = node.parent.map_or(0, |parent| self.assigned[parent]);
        let mut reasons = Vec::new();
        let named = self.names.get(&(parent, &*node.name));
        for id in named.cloned().unwrap_or_default() {
            if self.used.contains(&id) {
                reasons.push("it is there under another name".to_owned());
                continue;
            }
            if let Err(reason) = self.fits(id, node) {
                reasons.push(reason);
                continue;
            }
            self.assigned.push(id);
            self.used.insert(id);
            if self.next() {
                return true;
            }
            self.assigned.pop();
            self.used.remove(&id);
        }
        if reasons.is_empty() {
            reasons.push("no such name in any state that may show".to_owned());
        }
        self.complain(at, || {
            format!("{}: {}", self.found.path(at), reasons.join("; or "))
        });
        false
    }

    fn complain(&mut self, at: usize, text: impl FnOnce() -> String) {
        if self.complaint.1.is_empty() || at > self.complaint.0 {
            self.complaint = (at, text());
        }
    }

    fn fits(&self, id: Id, node: &FoundNode) -> Result<(), String> {
        let states = &self.model.states[self.windows.of_contents(id)];
        let nodes: Vec<&VolumeNode> = states
            .iter()
            .filter_map(|state| state.get(&id).map(|node| &**node))
            .collect();
        let files: Vec<&[u8]> = nodes
            .iter()
            .filter_map(|node| node.content.as_ref().map(|bytes| &bytes[..]))
            .collect();
        let Some(len) = node.len else {
            return if files.is_empty() {
                Ok(())
            } else {
                Err("a directory where a file should be".to_owned())
            };
        };
        if files.is_empty() {
            return Err("a file where a directory should be".to_owned());
        }
        if !files.iter().any(|bytes| u64_from(bytes.len()) == len) {
            let lens: BTreeSet<usize> = files.iter().map(|bytes| bytes.len()).collect();
            return Err(format!("{len} bytes long, not one of {lens:?}"));
        }
        if files.contains(&&*node.content) {
            return Ok(());
        }
        let foreign = node.content.iter().enumerate().find(|(at, byte)| {
            let stood = |bytes: &&[u8]| bytes.get(*at) == Some(*byte);
            !files.iter().any(stood)
        });
        match foreign {
            Some((at, byte)) => Err(format!("byte {at} is {byte:#04x}, which never stood there")),
            None => Ok(()),
        }
    }

    /// Checks that all nodes that exist in every state of their window were found.
    fn all_there(&mut self) -> bool {
        let last = &self.model.states[self.windows.last];
        for (&id, node) in last {
            let mut window = self.model.states[self.windows.of_name(id)].iter();
            if window.all(|state| state.contains_key(&id)) && !self.used.contains(&id) {
                let name = super::operation::shown(&node.name);
                self.complain(self.assigned.len() + 1, || {
                    format!("{name} (node {id}) is gone, and nothing removed it")
                });
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::powercut::operation::bytes;
    use crate::powercut::{Operation, Place};

    /// Runs the operations on a volume on which the file `A/one` of 10 bytes and the directory `B`
    /// are durable. Returns whether a crash may show these files after all operations had begun and
    /// `acknowledged` of them had returned.
    fn allowed(
        dirsync: bool,
        operations: &[Operation],
        returned: usize,
        files: &[(&str, Vec<u8>)],
    ) -> Result<(), String> {
        let mut first = Model::new(false);
        for operation in [
            Operation::Mkdir("A".into()),
            Operation::Mkdir("B".into()),
            Operation::Create("A/one".into()),
            write(0, 10),
        ] {
            first.apply(&operation).unwrap();
        }
        let mut model = first.go_on(dirsync);
        for operation in operations {
            model.apply(operation).unwrap();
        }
        let mut found = Found::default();
        for dir in ["A", "B"] {
            found.nodes.push(FoundNode {
                parent: None,
                name: dir.into(),
                len: None,
                content: Vec::new(),
            });
        }
        for (path, content) in files {
            let (dir, name) = path.split_once('/').unwrap();
            found.nodes.push(FoundNode {
                parent: Some(usize::from(dir == "B")),
                name: name.into(),
                len: Some(u64_from(content.len())),
                content: content.clone(),
            });
        }
        model.allows(&found, operations.len(), returned)
    }

    fn write(offset: u64, len: u64) -> Operation {
        let file = Place::from("A/one");
        Operation::Write { file, offset, len }
    }

    /// Returns the bytes of the very first write.
    fn old() -> Vec<u8> {
        bytes(3, 0, 10)
    }

    #[test]
    fn a_rename_shows_one_of_two_names() {
        let rename = Operation::Rename {
            from: "A/one".into(),
            to: "B/two".into(),
        };
        let (from, to) = ([("A/one", old())], [("B/two", old())]);
        let check = |dirsync, returned, files: &[_]| {
            allowed(dirsync, std::slice::from_ref(&rename), returned, files)
        };
        for (dirsync, returned, files) in [
            (false, 1, &from),
            (false, 1, &to),
            (true, 0, &from),
            (true, 1, &to),
        ] {
            assert_eq!(check(dirsync, returned, files), Ok(()));
        }
        let both = [from.clone(), to].concat();
        for (dirsync, returned, files, expected) in [
            (false, 1, &[][..], "is gone, and nothing removed it"),
            (false, 1, &both, "under another name"),
            (true, 1, &from, "no such name"),
        ] {
            let error = check(dirsync, returned, files).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn bytes_that_nothing_wrote_and_synced_bytes_that_are_not_there_are_noticed() {
        let append = [write(10, 5), Operation::Sync("A/one".into())];
        let new = [old(), bytes(4, 10, 5)].concat();
        let check = |returned, content: &[u8]| {
            let files = [("A/one", content.to_vec())];
            allowed(false, &append, returned, &files)
        };
        for content in [&old()[..], &new] {
            assert_eq!(check(1, content), Ok(()));
        }
        assert_eq!(check(2, &new), Ok(()));
        let error = check(2, &old()).unwrap_err();
        assert!(error.contains("10 bytes long, not one of {15}"), "{error}");
        for foreign in [0, 10, 14] {
            let mut content = new.clone();
            content[foreign] ^= 0x80;
            let error = check(1, &content).unwrap_err();
            assert!(error.contains("which never stood there"), "{error}");
        }
    }

    #[test]
    fn a_gap_behind_the_old_end_reads_as_zeros() {
        let operations = [write(20, 5)];
        let with_gap = |byte| [old(), vec![byte; 10], bytes(4, 20, 5)].concat();
        let check = |byte| allowed(false, &operations, 1, &[("A/one", with_gap(byte))]);
        assert_eq!(check(0), Ok(()));
        assert!(check(0xf0).unwrap_err().contains("which never stood there"));
    }

    #[test]
    fn a_removed_file_stays_removed_under_dirsync() {
        let remove = [Operation::Unlink("A/one".into())];
        for (dirsync, is_allowed) in [(false, true), (true, false)] {
            let found = allowed(dirsync, &remove, 1, &[("A/one", old())]);
            assert_eq!(found.is_ok(), is_allowed, "{found:?}");
            assert_eq!(allowed(dirsync, &remove, 1, &[]), Ok(()));
        }
    }
}
