//! Creates files and directories.

use forerun_vfs::{Error, FileType, NewNode, NodeId, Result};

use super::set::count;
use crate::entry_set::{Allocation, EntrySet};
use crate::name;
use crate::ondisk::attribute;
use crate::session::Session;

impl Session<'_> {
    /// Implements [`FileSystemMut::create`](forerun_vfs::FileSystemMut::create).
    pub fn create(&mut self, dir: NodeId, name: &[u8], new: &NewNode) -> Result<NodeId> {
        let store = self.writable()?;
        let attributes = match new.kind {
            FileType::Directory => attribute::DIRECTORY,
            FileType::Regular if new.permissions & 0o222 == 0 => {
                attribute::ARCHIVE | attribute::READ_ONLY
            }
            FileType::Regular => attribute::ARCHIVE,
            kind => {
                let what = format!("a {} on an exFAT volume", kind.name());
                return Err(Error::Unsupported(what));
            }
        };
        self.after_moves()?;
        self.changeable(dir)?;
        let units = name::for_new(name, store.keep_last_dots)?;
        if self.find(dir, name)?.is_some() {
            return Err(Error::Exists);
        }
        let time = self.stamp(new.time);
        let mut set = EntrySet::new(&units, attributes, time, &self.volume.upcase);
        let mut taken = Vec::new();
        if new.kind == FileType::Directory {
            taken = self.take(1, None)?;
        }
        let slot = match self.find_room(dir, count(&set), None) {
            Ok(slot) => slot,
            Err(error) => {
                self.free(&taken, false)?;
                return Err(error);
            }
        };
        if let Some(&(first, _)) = taken.first() {
            self.clear_cluster(first)?;
            let len = self.volume.boot.cluster_size();
            let data = Allocation {
                first,
                len,
                contiguous: true,
            };
            set.set_data(data, len);
        }
        let place = self.put(dir, slot, &set)?;
        let id = self.state.nodes.add(place);
        if new.kind == FileType::Directory {
            self.state.nodes.set_parent(id, dir);
        }
        self.touch(dir, new.time)?;
        Ok(id)
    }
}
