//! Files to disk: in parallel, in the order of the image, and never outside of the target.
//!
//! In four steps: directories, links and special files in the order of the walk; regular files in
//! physical order on several threads, which take runs of one directory; further names of files; modes and times of directories, deepest
//! first, so that a read-only directory can still be filled.
//!
//! The main cost is making many small files, so an ordinary one takes four calls: open, write, set the
//! time, close.

mod attributes;
mod collisions;
mod directories;
mod disk_ahead;
mod file;
mod gather;
mod links;
mod plan;
mod present;
mod report;
mod runs;

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use forerun_engine::Reader;
use forerun_io::u64_from;
use forerun_vfs::FileType;
use rustix::fs::FileType as HostType;
use rustix::io::Errno;

use crate::select::{Selected, Selection, failure, select};
use crate::{ExportError, IdMap, Progress};
use attributes::{Attributes, Defaults, mode};
use collisions::Collision;
use directories::{Directories, State};
use disk_ahead::DiskAhead;
use links::Made;
use plan::{Item, Plan};
pub use report::{ExtractReport, Failure, Loss, Shortfall};

/// How an extraction is done.
#[derive(Clone, Debug, Default)]
pub struct ExtractOptions {
    /// Replace what is there already. It is unlinked first, never written through. Directories are
    /// kept and filled.
    pub force: bool,
    /// Leave alone what an earlier run has finished, and make anew what it has left unfinished.
    pub skip_existing: bool,
    /// Make device nodes; needs root. Fifos and sockets are always made.
    pub devices: bool,
    /// Keep setuid, setgid and sticky bits.
    pub special_bits: bool,
    /// Whose the files are.
    pub owners: Owners,
    /// Give permissions as the system gives them to new files (less the caller's umask), not
    /// exactly those of the image.
    pub umask: bool,
    /// Give regular files permissions as the system gives them to new files, without set-id and sticky bits:
    /// as `unsquashfs` does it for users without root.
    pub umask_of_files: bool,
    /// Give the target the attributes of the image's root although it was there already.
    pub root_attributes: bool,
    /// The map of user ids.
    pub uids: IdMap,
    /// The map of group ids.
    pub gids: IdMap,
    /// Leave extended attributes out.
    pub no_xattrs: bool,
    /// Keep extended attributes of `security.` (file capabilities and labels) and of `trusted.`
    /// (overlay whiteouts and origins); setting them needs root.
    pub privileged_xattrs: bool,
    /// Report names that differ only in case even where the target tells them apart. Where it does
    /// not, only the first of them is made.
    pub case_collisions: bool,
    /// The caller has made the target directory for this extraction.
    pub is_new: bool,
    /// Threads that write files; 0 means one per CPU.
    pub threads: usize,
    /// Have all of it on disk at the end, unless that comes early. Writing begins while files are made, so that it
    /// takes less time than syncfs(2) afterwards. What the filesystem has of other programs is written too.
    pub sync: bool,
    /// Keep what can be read of damaged files, with zeros for what cannot, and report the outcome of each file.
    pub salvage: bool,
    /// Ends the extraction once the caller sets it: no half file is left, and the report counts what is
    /// missing.
    pub stop: Arc<AtomicBool>,
}

/// The owners that files get, where the format has owners.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Owners {
    /// The owners of the image as root; else the caller's, which the report tells.
    #[default]
    AsRoot,
    /// The owners of the image; where that fails, the report tells.
    Image,
    Caller,
}

/// Extracts what is selected below `dir`, which is made if it is missing.
///
/// # Errors
/// Only what prevents the whole: a selected path that is not there, a target that cannot be opened,
/// [`Limits::total_bytes`](forerun_vfs::Limits::total_bytes) below what would be written. All else is
/// in the report.
pub fn extract(
    reader: &Reader,
    selection: &Selection,
    dir: &Path,
    options: &ExtractOptions,
    progress: &dyn Progress,
) -> Result<ExtractReport, ExportError> {
    let chosen = select(reader, selection, plan::ENTRY)?;
    let bytes = chosen.check_limit(reader.limits().total_bytes)?;
    progress.begin(bytes, u64_from(chosen.entries.len()));
    let plan = Plan::new(&chosen.entries);
    let directories =
        Directories::open(dir, &plan.dirs, options).map_err(|source| ExportError::Target {
            path: dir.into(),
            source,
        })?;
    let volume = reader.fs().volume();
    let is_root = rustix::process::geteuid().is_root();
    let owners = volume.has_owners && options.owners != Owners::Caller;
    let mut job = ExtractJob {
        reader,
        options,
        progress,
        defaults: Defaults::probe(directories.root()),
        set_owners: owners && (is_root || options.owners == Owners::Image),
        tell_owners: owners && !is_root,
        xattrs: volume.has_xattrs && !options.no_xattrs,
        directories,
        made: Made::of_links(&plan.links),
        target: dir,
        disk_ahead: DiskAhead::default(),
        stop: AtomicBool::new(false),
    };
    let mut report = ExtractReport::default();
    let unseen = u64_from(chosen.failures.len());
    chosen
        .failures
        .into_iter()
        .for_each(|failure| report.fail(failure));
    job.run(plan, &mut report);
    if options.sync
        && !job.is_stopped()
        && let Err(error) = job.sync()
    {
        report.fail(error);
    }
    report.missing = report.missing.saturating_add(unseen);
    report.left_out = selection.left_out(reader);
    report.sort();
    Ok(report)
}

struct ExtractJob<'j> {
    reader: &'j Reader,
    options: &'j ExtractOptions,
    progress: &'j dyn Progress,
    /// The attributes that the target filesystem gives new files by itself.
    defaults: Option<Defaults>,
    set_owners: bool,
    /// Owners that are not set are counted.
    tell_owners: bool,
    xattrs: bool,
    directories: Directories,
    /// The inodes that get further names.
    made: Made,
    /// The target, as the caller named it.
    target: &'j Path,
    disk_ahead: DiskAhead,
    /// Nothing more can be written.
    stop: AtomicBool,
}

impl ExtractJob<'_> {
    fn run(&mut self, mut plan: Plan<'_>, report: &mut ExtractReport) {
        self.leave_collisions_out(&mut plan, report);
        let planned = plan.names().count();
        self.make_directories(&plan, report);
        self.skip_files(&mut plan, report);
        for item in &plan.others {
            self.other(item, report);
        }
        self.files(&plan.files, report);
        self.links(&plan.links, report);
        report.interrupted = self.options.stop.load(Ordering::Relaxed);
        report.stopped = self.stop.load(Ordering::Relaxed);
        report.missing = u64_from(planned).saturating_sub(report.done());
        // Another run can fill the directories of one that has ended early, and their owner can remove them.
        if self.is_stopped() {
            return;
        }
        for (index, dir) in plan.dirs.iter().enumerate().rev() {
            if let Some(entry) = dir.entry {
                self.finish_directory(index, dir.parent, entry, report);
            }
        }
        if plan.dirs.first().is_some_and(|dir| dir.entry.is_some()) {
            report.directories += 1;
        }
    }

    fn leave_collisions_out(&self, plan: &mut Plan<'_>, report: &mut ExtractReport) {
        let mut found = collisions::find(plan);
        let folding = self.folding(plan, &found);
        if !self.options.case_collisions {
            found.retain(|one| folding.contains(&one.dir));
        }
        if !folding.is_empty() {
            let folded = found.iter().filter(|one| folding.contains(&one.dir));
            let names: HashSet<_> = folded.map(|one| (one.dir, one.name.as_slice())).collect();
            let stays = |item: &Item<'_>| !names.contains(&(item.dir, item.name));
            plan.others.retain(stays);
            plan.files.retain(stays);
            plan.links
                .retain(|(first, item)| stays(first) && stays(item));
        }
        report.collisions = found
            .into_iter()
            .map(|Collision { path, other, .. }| (path, other))
            .collect();
    }

    /// Returns the directories of collisions in which names that differ only in case are one. New directories are
    /// like the one that they are made in.
    fn folding(&self, plan: &Plan<'_>, found: &[Collision]) -> HashSet<usize> {
        let mut known: HashMap<usize, bool> = HashMap::new();
        let mut folding = HashSet::new();
        for dir in found.iter().map(|one| one.dir) {
            let above = std::iter::successors(Some(dir), |&index| {
                let parent = plan.dirs.get(index).map(|dir| dir.parent);
                parent.filter(|_| index > 0)
            });
            for index in above {
                let Ok(opened) = self.directories.get(index) else {
                    continue;
                };
                let folds = known.entry(index);
                if *folds.or_insert_with(|| collisions::folds_case(&opened)) {
                    folding.insert(dir);
                }
                break;
            }
        }
        folding
    }

    fn make_directories(&mut self, plan: &Plan<'_>, report: &mut ExtractReport) {
        for dir in plan.dirs.iter().skip(1) {
            if self.is_stopped() {
                return;
            }
            // Closed to others while it is filled, unless its own mode lets them in; no other program
            // writes there before all is done.
            let bits = dir
                .entry
                .map_or(0o755, |entry| entry.metadata.mode & 0o755 | 0o700);
            let bits = if self.set_owners { 0o700 } else { bits };
            let path = dir.entry.map_or(dir.name, |entry| entry.name()).to_vec();
            match self.directories.make(mode(bits)) {
                Ok(_) => report.directories += 1,
                Err(source) => {
                    let action = "make the directory";
                    self.fail(
                        report,
                        ExportError::Entry {
                            path,
                            action,
                            source,
                        },
                    );
                }
            }
            self.progress.advance(0, 1);
        }
    }

    /// Makes a link or special file: a node without data.
    fn other(&self, item: &Item<'_>, report: &mut ExtractReport) {
        let kind = item.entry.metadata.kind;
        let is_device = matches!(kind, FileType::BlockDevice | FileType::CharDevice);
        if is_device && !self.options.devices {
            return report.lose(Loss::Device, item.entry.name(), None);
        }
        if self.is_stopped() || self.skips(item, report) {
            return;
        }
        self.progress.advance(0, 1);
        let made = self.directory_of(item).and_then(|dir| {
            if kind == FileType::Symlink {
                let target = self.reader.fs().read_link(item.entry.node);
                let target = target.map_err(|error| failure(item.entry, error))?;
                let make = || rustix::fs::symlinkat(target.as_slice(), &*dir, item.name);
                let made = self.directories.exclusively(&dir, item.name, make);
                return made.map_err(entry_error(item, "make the symbolic link"));
            }
            let made = self.special(item, &dir);
            made.map_err(entry_error(item, "make the special file"))
        });
        match made {
            Ok(()) if kind == FileType::Symlink => report.symlinks += 1,
            Ok(()) => report.specials += 1,
            Err(ExportError::Entry { source, .. })
                if is_device && source.kind() == io::ErrorKind::PermissionDenied =>
            {
                return report.lose(Loss::Device, item.entry.name(), Some(source));
            }
            Err(error) => return self.fail(report, error),
        }
        if let Ok(dir) = self.directories.get(item.dir) {
            self.made.note_name(item, &dir);
            let attributes = self.attributes(item.entry, report);
            let path = item.entry.name();
            attributes.set_at(
                &dir,
                item.name,
                self.defaults_in(item.dir),
                kind != FileType::Symlink,
                &mut |loss, error| report.lose(loss, path, Some(error.into())),
            );
        }
    }

    fn special(&self, item: &Item<'_>, dir: &OwnedFd) -> io::Result<()> {
        let metadata = &item.entry.metadata;
        let kind = match metadata.kind {
            FileType::BlockDevice => HostType::BlockDevice,
            FileType::CharDevice => HostType::CharacterDevice,
            FileType::Socket => HostType::Socket,
            _ => HostType::Fifo,
        };
        let number = rustix::fs::makedev(metadata.device.major, metadata.device.minor);
        let make = || rustix::fs::mknodat(dir, item.name, kind, mode(0o600), number);
        self.directories.exclusively(dir, item.name, make)
    }

    /// Sets what could not be set while the directory was being filled.
    fn finish_directory(
        &self,
        index: usize,
        parent: usize,
        entry: &Selected,
        report: &mut ExtractReport,
    ) {
        let state = self.directories.state(index);
        // A target that was there stays as the user made it; of what is not there nothing is set.
        let is_told = state == State::Made || self.options.root_attributes;
        let is_root_of_image = entry.path.is_empty() && is_told;
        if state == State::Failed || (index == 0 && !is_root_of_image) {
            return;
        }
        let attributes = self.attributes(entry, report);
        let path = entry.name();
        let lost = &mut |loss, error: Errno| report.lose(loss, path, Some(error.into()));
        let first = attributes.mode & 0o755 | 0o700;
        let has_mode = self
            .defaults
            .is_some_and(|defaults| !self.set_owners && first & defaults.bits() == attributes.mode);
        if index > 0 && state == State::Made && has_mode && attributes.xattrs.is_empty() {
            // The time is all that is missing, and needs no descriptor.
            match self.directories.get(parent) {
                Ok(dir) => attributes.set_time_at(&dir, self.directories.name(index), lost),
                Err(error) => report.lose(Loss::Time, path, Some(error)),
            }
            return;
        }
        match self.directories.get(index) {
            Ok(dir) => attributes.set(&*dir, self.defaults_in(index), true, lost),
            Err(error) => report.lose(Loss::Mode, path, Some(error)),
        }
    }

    fn directory_of(&self, item: &Item<'_>) -> Result<Arc<OwnedFd>, ExportError> {
        let dir = self.directories.get(item.dir);
        dir.map_err(entry_error(item, "create"))
    }

    /// Returns the attributes that a new node in this directory gets by itself, where they are known: in a
    /// directory that was there already other rules may hold.
    fn defaults_in(&self, dir: usize) -> Option<Defaults> {
        let known = dir == 0 || self.directories.state(dir) == State::Made;
        self.defaults.filter(|_| known)
    }

    /// Returns the attributes to set on an entry; counts those that are left out.
    fn attributes(&self, entry: &Selected, report: &mut ExtractReport) -> Attributes {
        let metadata = &entry.metadata;
        let owner = (
            self.options.uids.map(metadata.uid),
            self.options.gids.map(metadata.gid),
        );
        let is_given = self
            .defaults
            .is_some_and(|defaults| owner == defaults.owner());
        if self.tell_owners && !self.set_owners && !is_given {
            report.lose(Loss::Owner, entry.name(), None);
        }
        let is_link = metadata.kind == FileType::Symlink;
        let mut bits = metadata.mode & 0o7777;
        if self.options.umask_of_files && metadata.kind == FileType::Regular {
            bits &= 0o777 & self.defaults.map_or(0o755, Defaults::bits);
        }
        if !self.options.special_bits && bits & 0o7000 != 0 && !is_link {
            bits &= 0o777;
            report.lose(Loss::SpecialBits, entry.name(), None);
        }
        if self.options.umask {
            bits &= 0o7000 | self.defaults.map_or(0o755, Defaults::bits);
        }
        let mut xattrs = Vec::new();
        if self.xattrs {
            let add = &mut |name: &[u8], value: &[u8]| {
                if attributes::is_privileged(name) && !self.options.privileged_xattrs {
                    return report.lose(Loss::PrivilegedXattr, entry.name(), None);
                }
                xattrs.push((name.to_vec(), value.to_vec()));
            };
            if let Err(error) = self.reader.fs().xattrs(entry.node, add) {
                report.fail(failure(entry, error));
            }
        }
        Attributes {
            mode: bits,
            owner: self.set_owners.then_some(owner),
            mtime: metadata.mtime,
            xattrs,
        }
    }

    /// Writes all to disk that the filesystem of the target has.
    fn sync(&self) -> Result<(), ExportError> {
        let synced = rustix::fs::syncfs(self.directories.root());
        synced.map_err(|error| ExportError::Sync {
            path: self.target.into(),
            source: error.into(),
        })
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.options.stop.load(Ordering::Relaxed)
    }

    /// Notes a failure; one that all others would share ends the work.
    fn fail(&self, report: &mut ExtractReport, error: ExportError) {
        let is_final = |source: &io::Error| {
            use io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
            matches!(
                source.kind(),
                StorageFull | QuotaExceeded | ReadOnlyFilesystem
            )
        };
        let ends = matches!(&error, ExportError::Entry { source, .. } if is_final(source));
        if ends && self.stop.swap(true, Ordering::Relaxed) {
            // Said once.
            return;
        }
        report.fail(error);
    }
}

fn entry_error(item: &Item<'_>, action: &'static str) -> impl Fn(io::Error) -> ExportError + use<> {
    let path = item.entry.name().to_vec();
    move |source| ExportError::Entry {
        path: path.clone(),
        action,
        source,
    }
}
