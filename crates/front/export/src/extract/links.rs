//! Creates hard links, only to inodes that this run created.
//!
//! A name is not enough: the first name may be an existing file of the user, or another user with
//! write access to the directory may have replaced it. So the run records the inode of each file
//! with several names when it creates the file, and links only through a descriptor of that inode.
//! Files finished by an earlier run count as created.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Mutex;

use forerun_io::Unpoisoned;
use forerun_vfs::{FileType, NodeId};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::plan::Item;
use super::present::Present;
use super::{ExtractJob, ExtractReport, Loss, entry_error};
use crate::ExportError;

type Identity = (u64, u64);

/// The inodes of created files that get hard links.
pub struct Made {
    wanted: HashSet<NodeId>,
    inodes: Mutex<HashMap<NodeId, Identity>>,
}

impl Made {
    /// Creates an empty record that accepts only files in `links`.
    pub fn of_links(links: &[(Item<'_>, Item<'_>)]) -> Self {
        Self {
            wanted: links.iter().map(|(first, _)| first.entry.node).collect(),
            inodes: Mutex::default(),
        }
    }

    pub fn note(&self, node: NodeId, file: impl AsFd) {
        if self.wanted.contains(&node)
            && let Ok(stat) = rustix::fs::fstat(file)
        {
            self.insert(node, identity(&stat));
        }
    }

    /// Records a node that was just created exclusively under a name, for links and special files,
    /// which have no descriptor.
    pub fn note_name(&self, item: &Item<'_>, dir: &OwnedFd) {
        if self.wanted.contains(&item.entry.node)
            && let Ok(stat) = rustix::fs::statat(dir, item.name, AtFlags::SYMLINK_NOFOLLOW)
        {
            self.insert(item.entry.node, identity(&stat));
        }
    }

    fn insert(&self, node: NodeId, identity: Identity) {
        let mut inodes = self.inodes.lock().unpoisoned();
        inodes.insert(node, identity);
    }

    fn get(&self, node: NodeId) -> Option<Identity> {
        let inodes = self.inodes.lock().unpoisoned();
        inodes.get(&node).copied()
    }
}

const fn identity(stat: &Stat) -> Identity {
    (stat.st_dev, stat.st_ino)
}

fn link_open(file: &OwnedFd, dir: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
    match rustix::fs::linkat(file, "", dir, name, AtFlags::EMPTY_PATH) {
        // Before Linux 6.10, only root can link by descriptor; others link through /proc.
        Err(Errno::NOENT) => {
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            rustix::fs::linkat(CWD, path, dir, name, AtFlags::SYMLINK_FOLLOW)
        }
        linked => linked,
    }
}

/// Returns whether the error means that a copy is needed: the filesystem has no hard links (FAT,
/// exFAT), the file has the maximum number, or the directories are on different filesystems or
/// quotas.
fn makes_no_link(error: &std::io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    errno.is_some_and(|errno| {
        [
            Errno::PERM,
            Errno::MLINK,
            Errno::XDEV,
            Errno::OPNOTSUPP,
            Errno::NOSYS,
        ]
        .contains(&errno)
    })
}

impl ExtractJob<'_> {
    /// Creates the hard links. Creates a copy if the filesystem does not support the link.
    pub(super) fn links(&self, links: &[(Item<'_>, Item<'_>)], report: &mut ExtractReport) {
        let mut copies = Vec::new();
        for (first, item) in links {
            match self.link(first, item, report) {
                Ok(()) => {}
                Err(ExportError::Entry { source, .. }) if makes_no_link(&source) => {
                    report.lose(Loss::HardLink, item.entry.name(), None);
                    copies.push(*item);
                }
                Err(error) => {
                    self.progress.advance(0, 1);
                    self.fail(report, error);
                }
            }
        }
        let is_file = |item: &Item<'_>| item.entry.metadata.kind == FileType::Regular;
        let (files, others): (Vec<_>, Vec<_>) = copies.into_iter().partition(is_file);
        for item in &others {
            self.other(item, report);
        }
        if !files.is_empty() {
            self.files(&files, report);
        }
    }

    fn link(
        &self,
        first: &Item<'_>,
        item: &Item<'_>,
        report: &mut ExtractReport,
    ) -> Result<(), ExportError> {
        let is_device = matches!(
            item.entry.metadata.kind,
            FileType::BlockDevice | FileType::CharDevice
        );
        if is_device && !self.options.devices {
            report.lose(Loss::Device, item.entry.name(), None);
            return Ok(());
        }
        if self.is_stopped() {
            return Ok(());
        }
        if self.options.skip_existing && self.is_linked(first, item) {
            self.progress.advance(0, 1);
            report.skipped += 1;
            return Ok(());
        }
        let file = self.open_made(first, item)?;
        let dir = self.directory_of(item)?;
        if self.options.skip_existing
            && matches!(
                self.present(item, &dir),
                Present::Finished | Present::Unfinished
            )
        {
            // The existing name is a link to the file's old inode.
            let _ = rustix::fs::unlinkat(&dir, item.name, AtFlags::empty());
        }
        let make = || link_open(&file, &dir, item.name);
        let made = self.directories.exclusively(&dir, item.name, make);
        made.map_err(entry_error(item, "make the hard link"))?;
        self.progress.advance(0, 1);
        report.hard_links += 1;
        Ok(())
    }

    /// Returns whether a name is already a link to the first name's inode.
    fn is_linked(&self, first: &Item<'_>, item: &Item<'_>) -> bool {
        let found =
            self.directories.get(item.dir).ok().and_then(|dir| {
                rustix::fs::statat(&dir, item.name, AtFlags::SYMLINK_NOFOLLOW).ok()
            });
        let made = self.made.get(first.entry.node);
        made.is_some() && made == found.map(|stat| identity(&stat))
    }

    /// Opens the first name of a file, if it is still the inode that this run created.
    fn open_made(&self, first: &Item<'_>, item: &Item<'_>) -> Result<OwnedFd, ExportError> {
        let wrong = |reason| ExportError::Link {
            path: item.entry.name().to_vec(),
            first: first.entry.name().to_vec(),
            reason,
        };
        let made = self.made.get(first.entry.node);
        let made = made.ok_or_else(|| wrong("was not made"))?;
        let dir = self.directory_of(first)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&dir, first.name, flags, Mode::empty());
        let opened = opened.and_then(|file| Ok((identity(&rustix::fs::fstat(&file)?), file)));
        match opened {
            Ok((found, file)) if found == made => Ok(file),
            Ok(_) | Err(Errno::NOENT) => Err(wrong("was replaced meanwhile")),
            Err(error) => Err(entry_error(item, "make the hard link")(error.into())),
        }
    }
}
