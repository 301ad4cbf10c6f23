//! Files to disk: in parallel, in the order of the image, and never outside of the target.
//!
//! In four steps: directories, links and special files in the order of the walk; regular files in
//! physical order on several threads; further names of files; modes and times of directories,
//! deepest first, so that a read-only directory can still be filled.

mod target;

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use forerun_engine::Reader;
use forerun_io::{saturating_usize, u64_from};
use forerun_vfs::{FileType, NodeId};

use crate::select::{Selected, Selection, failure, select};
use crate::{ExportError, Progress};
use target::{Attributes, Target};

/// How an extraction is done.
#[derive(Clone, Debug, Default)]
pub struct ExtractOptions {
    /// Replace what is there already. It is unlinked first, never written through. Directories are
    /// kept and filled.
    pub force: bool,
    /// Make device nodes; needs root. Fifos and sockets are always made.
    pub devices: bool,
    /// Keep setuid, setgid and sticky bits.
    pub special_bits: bool,
    /// Keep owners, where the format has them; needs root.
    pub owners: bool,
    /// Threads that write files; 0 means one per CPU.
    pub threads: usize,
}

/// What became of one entry.
pub type Failure = ExportError;

/// What was done, and what was not.
#[derive(Debug, Default)]
pub struct ExtractReport {
    /// Directories made, or found and filled.
    pub directories: u64,
    /// Regular files written.
    pub files: u64,
    /// Bytes of regular files, holes included.
    pub bytes: u64,
    /// Further names of files.
    pub hard_links: u64,
    /// Symbolic links made.
    pub symlinks: u64,
    /// Devices, fifos and sockets made.
    pub specials: u64,
    /// What could not be done, by entry. Everything else was.
    pub failures: Vec<Failure>,
}

/// Bytes read and written at a time.
const CHUNK: usize = 1 << 20;

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
    let chosen = select(reader, selection)?;
    let bytes = chosen.check_limit(reader.limits().total_bytes)?;
    progress.begin(bytes, u64_from(chosen.entries.len()));
    let target = Target::open(dir, options.force).map_err(|source| ExportError::Target {
        path: dir.into(),
        source,
    })?;
    let report = ExtractReport {
        failures: chosen.failures,
        ..ExtractReport::default()
    };
    let job = Job {
        reader,
        options,
        progress,
        target,
        owners: options.owners && reader.fs().volume().has_owners,
        xattrs: reader.fs().volume().has_xattrs,
        report: Mutex::new(report),
    };
    job.run(&chosen.entries);
    Ok(job
        .report
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner))
}

struct Job<'j> {
    reader: &'j Reader,
    options: &'j ExtractOptions,
    progress: &'j dyn Progress,
    target: Target,
    owners: bool,
    xattrs: bool,
    report: Mutex<ExtractReport>,
}

impl Job<'_> {
    fn run(&self, entries: &[Selected]) {
        let mut files = HashMap::new();
        let mut order = Vec::new();
        let mut links = Vec::new();
        let mut firsts: HashMap<NodeId, &Selected> = HashMap::new();
        for entry in entries {
            // What is selected by itself, as the root of the choice, becomes the target.
            if entry.name.is_empty() && entry.metadata.kind != FileType::Directory {
                continue;
            }
            let is_dir = entry.metadata.kind == FileType::Directory;
            if let Some(first) = firsts.get(&entry.node).filter(|_| !is_dir) {
                links.push((*first, entry));
                continue;
            }
            firsts.insert(entry.node, entry);
            if entry.metadata.kind == FileType::Regular {
                files.insert(entry.node, entry);
                order.push(entry.node);
            } else {
                self.small(entry);
            }
        }
        self.files(order, &files);
        for (first, entry) in links {
            self.link(first, entry);
        }
        for entry in entries
            .iter()
            .rev()
            .filter(|entry| entry.metadata.kind == FileType::Directory)
        {
            let result = self
                .target
                .finish_directory(&entry.name, &self.attributes(entry));
            self.outcome(entry, "set the mode of", result, |_| ());
        }
    }

    /// Everything that has no data.
    fn small(&self, entry: &Selected) {
        let name = &entry.name;
        match entry.metadata.kind {
            FileType::Directory => {
                let result = self.target.directory(name);
                self.outcome(entry, "make the directory", result, |report| {
                    report.directories += 1
                });
            }
            FileType::Symlink => match self.reader.fs().read_link(entry.node) {
                Ok(link) => {
                    let result = self.target.symlink(name, &link, &self.attributes(entry));
                    self.outcome(entry, "make the symbolic link", result, |report| {
                        report.symlinks += 1
                    });
                }
                Err(error) => self.failed(failure(entry, error)),
            },
            FileType::BlockDevice | FileType::CharDevice if !self.options.devices => {
                let reason = "device nodes are made only when asked for";
                self.failed(ExportError::LeftOut {
                    path: name.clone(),
                    reason,
                });
            }
            kind => {
                let device = entry.metadata.device;
                let result = self
                    .target
                    .special(name, kind, device, &self.attributes(entry));
                self.outcome(entry, "make the special file", result, |report| {
                    report.specials += 1
                });
            }
        }
        self.progress.advance(0, 1);
    }

    fn files(&self, mut order: Vec<NodeId>, files: &HashMap<NodeId, &Selected>) {
        self.reader.physical_order(&mut order);
        let threads = match self.options.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            n => n,
        };
        let bulk = self.reader.bulk(order);
        let work = || {
            while let Some((_, node)) = bulk.take() {
                if let Some(entry) = files.get(&node) {
                    self.file(entry);
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(work);
            }
            work();
        });
    }

    fn file(&self, entry: &Selected) {
        let mut file = match self.target.create(&entry.name) {
            Ok(file) => file,
            Err(source) => {
                return self.failed(ExportError::Entry {
                    path: entry.name.clone(),
                    action: "create",
                    source,
                });
            }
        };
        let size = entry.metadata.size;
        let copied = self.copy(entry, &file).and_then(|()| {
            let wrong = |source| ExportError::Entry {
                path: entry.name.clone(),
                action: "write",
                source,
            };
            file.finish(size, &self.attributes(entry)).map_err(wrong)
        });
        match copied {
            Ok(()) => self.note(|report| {
                report.files += 1;
                report.bytes += size;
            }),
            Err(error) => {
                // Half a file under its full name would be taken for the whole.
                file.remove();
                self.failed(error);
            }
        }
        self.progress.advance(0, 1);
    }

    /// Writes the data between the holes.
    fn copy(&self, entry: &Selected, file: &target::NewFile) -> Result<(), ExportError> {
        let read = |source| failure(entry, source);
        let (node, mut at) = (entry.node, 0);
        while let Some(start) = self.reader.seek_data(node, at).map_err(read)? {
            let end = self
                .reader
                .seek_hole(node, start)
                .map_err(read)?
                .unwrap_or(entry.metadata.size);
            self.progress.advance(start - at, 0);
            at = start;
            while at < end {
                let want = saturating_usize(end - at).min(CHUNK);
                let data = self.reader.read(node, at, want).map_err(read)?;
                let wrong = |source| ExportError::Entry {
                    path: entry.name.clone(),
                    action: "write",
                    source,
                };
                if data.is_empty() {
                    return Err(wrong(io::ErrorKind::UnexpectedEof.into()));
                }
                file.write_at(at, &data).map_err(wrong)?;
                at += u64_from(data.len());
                self.progress.advance(u64_from(data.len()), 0);
            }
        }
        Ok(())
    }

    fn link(&self, first: &Selected, entry: &Selected) {
        let result = self.target.link(&first.name, &entry.name);
        self.outcome(entry, "make the hard link", result, |report| {
            report.hard_links += 1
        });
        self.progress.advance(0, 1);
    }

    fn attributes(&self, entry: &Selected) -> Attributes {
        let metadata = &entry.metadata;
        let mut xattrs = Vec::new();
        if self.xattrs {
            let add = &mut |name: &[u8], value: &[u8]| xattrs.push((name.to_vec(), value.to_vec()));
            if let Err(error) = self.reader.fs().xattrs(entry.node, add) {
                self.failed(failure(entry, error));
            }
        }
        Attributes {
            mode: metadata.mode
                & if self.options.special_bits {
                    0o7777
                } else {
                    0o777
                },
            owner: self.owners.then_some((metadata.uid, metadata.gid)),
            mtime: metadata.mtime,
            xattrs,
        }
    }

    fn outcome(
        &self,
        entry: &Selected,
        action: &'static str,
        result: io::Result<()>,
        done: impl FnOnce(&mut ExtractReport),
    ) {
        match result {
            Ok(()) => self.note(done),
            Err(source) => self.failed(ExportError::Entry {
                path: entry.name.clone(),
                action,
                source,
            }),
        }
    }

    fn note(&self, change: impl FnOnce(&mut ExtractReport)) {
        change(&mut self.report.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn failed(&self, failure: Failure) {
        self.note(|report| report.failures.push(failure));
    }
}
