//! Changes file lengths.

use std::sync::Arc;

use forerun_vfs::{Error, Result};

use crate::chain::Chain;
use crate::ondisk::MAX_CLUSTERS;
use crate::session::{Node, Session};

impl Session<'_> {
    /// Returns the number of clusters for a file length. Fails with `NoSpace` if the volume has
    /// fewer clusters, and with `TooLarge` if every volume has.
    pub fn clusters_for(&self, len: u64) -> Result<u32> {
        let clusters = self.volume.boot.clusters_for(len);
        match u32::try_from(clusters) {
            Ok(clusters) if clusters <= self.volume.boot.clusters => Ok(clusters),
            Ok(clusters) if clusters <= MAX_CLUSTERS => Err(Error::NoSpace),
            _ => Err(Error::TooLarge),
        }
    }

    /// Sets the length of a file in `node`; the caller writes the set. Added bytes are not valid
    /// and read as zeros. If the space does not suffice, nothing changes.
    pub fn resize(&mut self, node: &mut Node, len: u64) -> Result<()> {
        let need = self.clusters_for(len)?;
        let chain = self.chain(node.id)?;
        let chain = if need > chain.clusters() {
            self.grow_chain(node.id, need)?
        } else {
            self.cut_chain(node, &chain, need)?
        };
        let valid = node.set.valid_len().min(len);
        self.describe_data(node, &chain, len, valid);
        self.settle_chain(node, chain, len);
        Ok(())
    }

    /// Sets the allocation and the lengths of the data in a set.
    pub fn describe_data(&self, node: &mut Node, chain: &Chain, len: u64, valid: u64) {
        let mut data = node.set.data();
        data.first = if len == 0 { 0 } else { chain.first() };
        data.len = len;
        data.contiguous = chain.is_contiguous();
        node.set.set_data(data, valid);
    }

    /// Caches the chain of a file after its length was set to `len`.
    pub fn settle_chain(&mut self, node: &Node, chain: Arc<Chain>, len: u64) {
        let is_ahead = u64::from(chain.clusters()) > self.volume.boot.clusters_for(len);
        if is_ahead {
            self.state.pending.ahead.insert(node.id)
        } else {
            self.state.pending.ahead.remove(&node.id)
        };
        self.keep_chain(node.id, chain, is_ahead);
    }

    /// Truncates the chain of a file to its first `keep` clusters.
    fn cut_chain(&mut self, node: &Node, chain: &Arc<Chain>, keep: u32) -> Result<Arc<Chain>> {
        if chain.clusters() == keep {
            return Ok(Arc::clone(chain));
        }
        let mut left = chain.as_ref().clone();
        let cut = left.truncate(keep);
        if keep > 0 {
            self.state.pending.cut_nodes.insert(node.id);
        }
        if let Some(last) = left.last()
            && !left.is_contiguous()
        {
            self.state.pending.cuts.insert(last);
        }
        self.free(&cut, false)?;
        Ok(Arc::new(left))
    }

    /// Frees the clusters beyond the length of a file.
    pub fn trim_ahead(&mut self, node: &Node) -> Result<()> {
        let len = node.set.data().len;
        let keep = self.clusters_for(len)?;
        let chain = self.chain(node.id)?;
        let chain = self.cut_chain(node, &chain, keep)?;
        self.settle_chain(node, chain, len);
        Ok(())
    }
}
