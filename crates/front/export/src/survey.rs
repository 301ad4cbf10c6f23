//! A first walk over what was chosen, which keeps no paths: the outputs that follow the order of the
//! walk are written in a second one.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use forerun_engine::Reader;
use forerun_vfs::{FileType, Held, NodeId};

use crate::ExportError;
use crate::select::{Found, Selected, Selection, failure, visit, within};

/// The amounts that the second walk will meet.
#[derive(Debug)]
pub struct Survey {
    /// Entries that were chosen themselves.
    pub entries: u64,
    /// Bytes of all regular files; a file with several names is counted once.
    pub bytes: u64,
    /// The regular files in the order of the walk.
    pub files: Vec<NodeId>,
    /// The memory that the caller has left.
    pub held: Held,
    /// Everything but directories, and whether it has several names.
    nodes: HashMap<NodeId, bool>,
}

/// Which names of a file are listed in [`Survey::files`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    First,
    All,
}

/// Bytes that an entry takes: in the map while it grows, in the list of files, and in that of the bulk
/// stream.
const NODE: usize = 32;
const FILE: usize = 24;

impl Survey {
    /// Walks over what is selected.
    ///
    /// # Errors
    /// A selected path that is not there, more bytes than the limit, more entries than memory allows.
    /// What cannot be looked at is left to the second walk.
    pub fn of(reader: &Reader, selection: &Selection, names: Names) -> Result<Self, ExportError> {
        let mut survey = Self {
            entries: 0,
            bytes: 0,
            files: Vec::new(),
            held: Held::new(reader.limits()),
            nodes: HashMap::new(),
        };
        visit(reader, selection, &mut |found| match found {
            Found::Entry(entry) if !entry.implied => {
                let added = survey.add(&entry, names);
                added.map_err(|error| failure(&entry, error))
            }
            Found::Entry(_) | Found::Failure(_) => Ok(()),
        })?;
        within(survey.bytes, reader.limits().total_bytes)?;
        Ok(survey)
    }

    fn add(&mut self, entry: &Selected, names: Names) -> forerun_vfs::Result<()> {
        self.entries += 1;
        let kind = entry.metadata.kind;
        if kind == FileType::Directory {
            return Ok(());
        }
        let is_first = match self.nodes.entry(entry.node) {
            Entry::Vacant(vacant) => {
                self.held.add(NODE)?;
                vacant.insert(false);
                true
            }
            Entry::Occupied(mut known) => {
                known.insert(true);
                false
            }
        };
        if kind != FileType::Regular {
            return Ok(());
        }
        if is_first {
            self.bytes = self.bytes.saturating_add(entry.metadata.size);
        }
        if is_first || names == Names::All {
            self.held.add(FILE)?;
            self.files.push(entry.node);
        }
        Ok(())
    }

    /// Returns whether a node has several names among those that were chosen.
    pub fn has_several_names(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|&several| several)
    }
}
