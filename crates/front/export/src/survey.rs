//! A first walk over the selection that stores no paths. A second walk writes the output in walk
//! order.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use forerun_engine::Reader;
use forerun_vfs::{FileType, Held, NodeId};

use crate::ExportError;
use crate::select::{Found, Selected, Selection, failure, visit, within};

/// Totals of what the second walk will visit.
#[derive(Debug)]
pub struct Survey {
    /// Number of entries selected themselves.
    pub entries: u64,
    /// Bytes of all regular files, counting a file with several names once.
    pub bytes: u64,
    /// The regular files in walk order.
    pub files: Vec<NodeId>,
    /// The caller's remaining memory budget.
    pub held: Held,
    /// All nodes except directories, and whether they have several selected names.
    nodes: HashMap<NodeId, bool>,
}

/// Which names of a file are listed in [`Survey::files`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    First,
    All,
}

/// Memory per entry: in the map including growth, in the list of files, and in the bulk stream's
/// list.
const NODE: usize = 32;
const FILE: usize = 24;

impl Survey {
    /// Walks the selection. Leaves errors below the selected paths to the second walk.
    ///
    /// # Errors
    /// A selected path does not exist, or bytes or entries exceed their limits.
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

    pub fn has_several_names(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|&several| several)
    }
}
