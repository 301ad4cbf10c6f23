//! Takes over a volume from the state that the previous server left.
//!
//! After a crash, only directories are found again, by their names. File numbers become invalid:
//! their descriptors fail with EIO, as after a device error. The kernel must look up all names
//! again, because its caches may be outdated. The message that invalidates them must not wait for
//! locks that requests hold: a thread waiting in the kernel keeps its process from exiting, and
//! then the next process cannot answer the requests. So the connection's epoch is incremented
//! (Linux 6.16). On older kernels names have a short lifetime instead ([`CoreMut::name_ttl`]).
//!
//! The server does not know which directories are open. No fsync(2) of a directory may succeed
//! after a change of its names was lost. So the first fsync(2) fails for each directory that the
//! kernel referenced or that [`Reports`] kept.
//!
//! [`Reports`]: super::reports::Reports

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use forerun_engine::Volume;
use forerun_vfs::{FileSystemMut, FileType, NodeId};
use fuser::{INodeNo, Notifier};

use super::core::CoreMut;
use super::flusher::commit;
use super::known::Name;
use super::numbers::{MOST_SERVERS, ROOT};
use crate::MountOptions;
use crate::attr::system_time;
use crate::connection::notification;
use crate::error::HandoverError;
use crate::state_table::{KnownInode, VolumeState};

/// Notification that makes the kernel look up every name again.
const NOTIFY_INC_EPOCH: u32 = 8;

/// Directories whose cached contents may be outdated.
#[derive(Debug)]
pub struct Outdated(Vec<u64>);

impl Outdated {
    pub fn tell(self, notifier: &Notifier, connection: impl AsFd) {
        for number in self.0 {
            // An error means that the kernel does not have the inode cached.
            let _gone = notifier.inval_inode(INodeNo(number), 0, 0);
        }
        let message = notification(NOTIFY_INC_EPOCH, &[], &[]);
        let told = message.and_then(|message| Ok(rustix::io::write(connection, &message)?));
        if let Err(error) = told {
            tracing::debug!("names are looked up again by and by: {error}");
        }
    }
}

impl CoreMut {
    /// Creates the core for a reopened `volume` and takes over from the server that wrote `state`.
    /// If that server died, also returns the caches to invalidate.
    pub fn recover(
        volume: Arc<Volume>,
        options: &MountOptions,
        state: OwnedFd,
    ) -> io::Result<(Self, Option<Outdated>)> {
        let (state, inherited) = VolumeState::inherit(state)?;
        if state.server() > MOST_SERVERS {
            return Err(io::Error::other(
                "inode numbers have no room for another process",
            ));
        }
        let root = volume.fs().root();
        let inodes = inherited.inodes.into_iter();
        let inodes: HashMap<u64, KnownInode> = inodes.map(|inode| (inode.number, inode)).collect();
        let mut taken = HashSet::new();
        let found = resolve(root, &inodes, &mut |dir, inode| {
            find(volume.fs(), dir, inode).filter(|node| taken.insert(*node))
        });
        let mut core = Self::new(volume, options, Some(state));
        core.is_rolled_back = inherited.has_died && !core.durable.0;
        let mut directories = vec![ROOT];
        for (number, inode) in &inodes {
            let (Some(Some(node)), Some(Some(dir))) = (found.get(number), found.get(&inode.parent))
            else {
                core.known.lost(*number);
                continue;
            };
            // In the driver, one open handle stands for all inherited ones.
            if inode.opens > 0
                && let Err(error) = core.fs().open(*node)
            {
                tracing::error!(node = node.0, "a file that is open is lost: {error}");
                core.known.lost(*number);
                continue;
            }
            if inode.is_directory {
                directories.push(*number);
            }
            core.inherit(*node, *dir, inode);
        }
        tracing::info!(
            known = inodes.len(),
            lost = found.values().filter(|node| node.is_none()).count(),
            "the kernel's inodes were looked up again"
        );
        if !core.durable.0 {
            for number in &directories {
                let is_unreported = match inodes.get(number) {
                    Some(inode) => inode.is_unreported,
                    None => inherited.is_unreported,
                };
                if inherited.has_died || is_unreported {
                    core.known.reports.await_report(core.node(*number));
                }
            }
        }
        let outdated = inherited.has_died.then_some(Outdated(directories));
        Ok((core, outdated))
    }

    fn inherit(&self, node: NodeId, dir: NodeId, inode: &KnownInode) {
        let name = Name {
            dir,
            name: inode.name.clone().into(),
        };
        self.known.inherit(node, name, inode);
    }

    /// Makes everything durable and writes the kernel's references for the next server. The caller
    /// ensures that no request is being answered.
    ///
    /// # Errors
    /// The reason why no server could take over.
    pub fn leave(&self) -> Result<(), HandoverError> {
        commit(&self.volume, &self.known).map_err(HandoverError::Sync)?;
        let left = self.known.leave(|node, name| self.is_named(node, name));
        left.map_err(HandoverError::State)
    }
}

/// Looks up an inode by name and checks that it is the same node.
fn find(fs: &dyn FileSystemMut, dir: NodeId, inode: &KnownInode) -> Option<NodeId> {
    let node = fs.lookup(dir, &inode.name).ok()??;
    let is_directory = fs.metadata(node).ok()?.kind == FileType::Directory;
    let mut is_it = is_directory == inode.is_directory;
    if is_directory {
        let created = system_time(fs.usage(node).ok()?.created);
        let since = created.duration_since(UNIX_EPOCH).unwrap_or_default();
        is_it &= since.as_nanos() == u128::from(inode.created);
    }
    is_it.then_some(node)
}

/// Finds each inode through its parent directories. Lost inodes map to `None`.
fn resolve(
    root: NodeId,
    inodes: &HashMap<u64, KnownInode>,
    find: &mut dyn FnMut(NodeId, &KnownInode) -> Option<NodeId>,
) -> HashMap<u64, Option<NodeId>> {
    let mut found = HashMap::from([(ROOT, Some(root))]);
    for &number in inodes.keys() {
        let (mut path, mut at) = (Vec::new(), number);
        while !found.contains_key(&at) {
            // Directories in a cycle are lost.
            found.insert(at, None);
            let Some(inode) = inodes.get(&at) else {
                break;
            };
            path.push(inode);
            at = inode.parent;
        }
        for inode in path.into_iter().rev() {
            let dir = found.get(&inode.parent).copied().flatten();
            let node = dir.and_then(|dir| find(dir, inode));
            found.insert(inode.number, node);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asserts which inodes (number, directory, name) are found on a volume with these names.
    #[track_caller]
    fn check(inodes: &[(u64, u64, &str)], volume: &[(u64, &str, u64)], expected: &[(u64, u64)]) {
        let inode = |&(number, parent, name): &(u64, u64, &str)| {
            let inode = KnownInode {
                number,
                parent,
                name: name.into(),
                ..KnownInode::default()
            };
            (number, inode)
        };
        let inodes = inodes.iter().map(inode).collect();
        let mut lookup = |dir: NodeId, inode: &KnownInode| {
            let mut all = volume.iter();
            let found = all.find(|(of, is, _)| *of == dir.0 && is.as_bytes() == inode.name);
            found.map(|(_, _, node)| NodeId(*node))
        };
        let found = resolve(NodeId(100), &inodes, &mut lookup);
        let found = found.into_iter();
        let mut found: Vec<_> = found.filter_map(|(n, node)| Some((n, node?.0))).collect();
        found.sort_unstable();
        assert_eq!(found, [&[(ROOT, 100)], expected].concat());
    }

    #[test]
    fn names_lead_through_directories() {
        let inodes = [
            (4, 3, "f"),
            (3, 2, "d2"),
            (2, ROOT, "d1"),
            (5, 9, "of a lost one"),
        ];
        let volume = [(100, "d1", 20), (20, "d2", 30), (30, "f", 40)];
        check(&inodes, &volume, &[(2, 20), (3, 30), (4, 40)]);
        check(&inodes, &volume[..2], &[(2, 20), (3, 30)]);
        check(&inodes, &volume[1..], &[]);
    }

    #[test]
    fn directories_in_a_circle_are_lost() {
        check(&[(2, 3, "d1"), (3, 2, "d2")], &[(100, "d1", 20)], &[]);
    }
}
