//! Forgets ids that the caller no longer holds.

use forerun_vfs::NodeId;

use crate::session::Session;

impl Session<'_> {
    /// Drops the state kept for an id. If pending changes use the id, the next commit drops it.
    pub fn forget_id(&mut self, id: NodeId) {
        let pending = &self.state.pending;
        if pending.is_open(id) || pending.orphan(id).is_some() {
            return;
        }
        if self.state.nodes.is_renamed_by_forgetting(id) {
            if self.state.pending.goes_by(id) {
                self.state.pending.forgotten.insert(id);
                return;
            }
            self.drop_index(id);
        }
        self.state.nodes.forget(id);
        if !self.is_ahead(id) {
            self.drop_chain(id);
        }
    }

    /// Drops the ids that waited for a commit.
    pub fn forget_ids(&mut self) {
        for id in std::mem::take(&mut self.state.pending.forgotten) {
            self.forget_id(id);
        }
    }
}
