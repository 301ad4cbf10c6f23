//! Extracts files to disk: in parallel, in image order, and never outside the target.
//!
//! Directories are created first, those of one parent together, then links and special files. Then
//! several threads write regular files in physical order, in runs of one directory. Hard links
//! follow. Modes and times of directories are set last, deepest first, so that read-only directories
//! can be filled.
//!
//! Creating many small files is the main cost, so an ordinary file takes four calls: open, write,
//! set the time, close.

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

use forerun_build::XattrFilter;
use forerun_engine::Reader;
use forerun_io::u64_from;
use forerun_vfs::{FileType, Timestamp};
use rustix::fs::FileType as HostType;
use rustix::io::Errno;

use crate::select::{Selected, Selection, failure, select};
use crate::{ExportError, IdMap, Progress};
use attributes::{Attributes, Defaults, mode};
use collisions::Collision;
use directories::{Directories, State};
use disk_ahead::DiskAhead;
use links::Made;
use plan::{Dir, Item, Plan};
pub use report::{ExtractReport, Failure, Loss, Shortfall};

/// Number of names below a directory up to which its subdirectories are placed near it.
const TOGETHER: usize = 128;

#[derive(Clone, Debug, Default)]
pub struct ExtractOptions {
    /// Replace existing files: unlink them first, never write through them. Existing directories
    /// are kept and filled.
    pub force: bool,
    /// Skip entries that an earlier run finished; recreate those it left unfinished.
    pub skip_existing: bool,
    /// Create device nodes, which needs root. Fifos and sockets are always created.
    pub devices: bool,
    pub special_bits: bool,
    pub owners: Owners,
    /// Apply the umask to permissions.
    pub umask: bool,
    /// Apply the umask to regular files and drop their set-ID and sticky bits, as `unsquashfs` does
    /// without root.
    pub umask_of_files: bool,
    /// Set the root's attributes even on an existing target directory.
    pub root_attributes: bool,
    pub uids: IdMap,
    pub gids: IdMap,
    pub no_xattrs: bool,
    pub xattr_filter: XattrFilter,
    /// Keep extended attributes in `security.` (file capabilities, labels) and `trusted.` (overlay
    /// whiteouts and origins); setting them needs root.
    pub privileged_xattrs: bool,
    /// The time of all entries instead of their own.
    pub time: Option<Timestamp>,
    /// Report names that differ only in case even on a case-sensitive target. On a case-insensitive
    /// target only the first is created.
    pub case_collisions: bool,
    /// The caller created the target directory for this extraction.
    pub is_new: bool,
    /// Number of threads that write files; 0 means one per CPU.
    pub threads: usize,
    /// Sync the target filesystem, unless the extraction ends early. Starts during the extraction,
    /// which takes less time than one syncfs(2) at the end. Also syncs other programs' data on the
    /// filesystem.
    pub sync: bool,
    /// Keep the readable data of damaged files, with zeros for the rest, and report the outcome of
    /// each file.
    pub salvage: bool,
    /// Set by the caller to stop the extraction. No incomplete file stays, and the report counts
    /// what is missing.
    pub stop: Arc<AtomicBool>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Owners {
    /// The image's owners when running as root; otherwise the caller, and the report counts the
    /// differences.
    #[default]
    AsRoot,
    /// The image's owners; failures are in the report.
    Image,
    Caller,
}

/// Extracts the selection into `dir`, creating it if needed.
///
/// # Errors
/// Only errors that affect everything: a selected path does not exist, the target cannot be opened,
/// or the files exceed [`Limits::total_bytes`](forerun_vfs::Limits::total_bytes). Other errors are
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
    /// The attributes that new files in the target get by default.
    defaults: Option<Defaults>,
    set_owners: bool,
    tell_owners: bool,
    xattrs: bool,
    directories: Directories,
    made: Made,
    /// The target directory as the caller named it.
    target: &'j Path,
    disk_ahead: DiskAhead,
    /// Set when nothing more can be written.
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
        // Leave directories writable, so that another run can continue and their owner can delete
        // them.
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

    /// Returns which directories with collisions are case-insensitive. A directory not yet created
    /// is like its parent.
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
        let sizes = plan.sizes();
        let order = plan.by_parent();
        let parent = |index: usize| plan.dirs[index].parent;
        for siblings in order.chunk_by(|&a, &b| parent(a) == parent(b)) {
            let above = parent(siblings[0]);
            let _spread = (sizes[above] > TOGETHER).then(|| self.directories.spread(above));
            for &index in siblings {
                if self.is_stopped() {
                    return;
                }
                self.make_directory(index, &plan.dirs[index], report);
            }
        }
    }

    fn make_directory(&mut self, index: usize, dir: &Dir<'_>, report: &mut ExtractReport) {
        // Others must not write here until the end. If the owner changes at the end, they must
        // not read here either.
        let bits = dir
            .entry
            .map_or(0o755, |entry| entry.metadata.mode & 0o755 | 0o700);
        let bits = if self.set_owners { 0o700 } else { bits };
        let path = dir.entry.map_or(dir.name, |entry| entry.name()).to_vec();
        match self.directories.make(index, mode(bits)) {
            Ok(()) => report.directories += 1,
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

    /// Sets the attributes that could not be set while the directory was being filled.
    fn finish_directory(
        &self,
        index: usize,
        parent: usize,
        entry: &Selected,
        report: &mut ExtractReport,
    ) {
        let state = self.directories.state(index);
        // An existing target keeps its attributes. A directory that was not created has none to
        // set.
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
            // Only the time is missing, which needs no descriptor.
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

    /// Returns the attributes that a new node in this directory gets by default, if known. Existing
    /// directories may have different rules.
    fn defaults_in(&self, dir: usize) -> Option<Defaults> {
        let known = dir == 0 || self.directories.state(dir) == State::Made;
        self.defaults.filter(|_| known)
    }

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
                if !self.options.xattr_filter.keeps(name) {
                    return;
                }
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
            mtime: self.options.time.unwrap_or(metadata.mtime),
            xattrs,
        }
    }

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

    /// Records a failure. A failure that would affect all other files stops the extraction.
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
            // Reported only once.
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
