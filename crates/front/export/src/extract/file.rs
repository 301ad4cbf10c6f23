//! Writes regular files on several threads.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::thread::ScopedJoinHandle;

use forerun_engine::{Bulk, TakenFile};
use forerun_io::u64_from;
use forerun_vfs::NodeId;
use rustix::fs::{AtFlags, OFlags};

use super::ExtractJob;
use super::gather::Gather;
use super::plan::Item;
use super::report::ExtractReport;
use super::runs::Runs;
use crate::content::visit_data;
use crate::salvage::visit_readable;
use crate::select::failure;
use crate::{ExportError, Remains, SalvagedFile};

const NEW: OFlags = OFlags::WRONLY
    .union(OFlags::CREATE)
    .union(OFlags::EXCL)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

impl ExtractJob<'_> {
    pub(super) fn files(&self, items: &[Item<'_>], report: &mut ExtractReport) {
        let nodes: Vec<NodeId> = items.iter().map(|item| item.entry.node).collect();
        let threads = match self.options.threads {
            0 => self.reader.options().pool_threads(),
            n => n,
        };
        let bulk = self.reader.bulk_by_place(nodes);
        let threads = threads.min(bulk.len());
        let runs = Runs::new(&bulk, items);
        std::thread::scope(|scope| {
            let sync_ahead = || self.disk_ahead.follow(|| self.sync());
            let syncing = self.options.sync.then(|| scope.spawn(sync_ahead));
            // A guard, so that the syncing thread ends after a panic too.
            let writing = self.disk_ahead.writing();
            let work = || self.work(&bulk, &runs);
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
            report.add(work());
            for thread in others {
                match thread.join() {
                    Ok(done) => report.add(done),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            drop(writing);
            match syncing.map(ScopedJoinHandle::join) {
                None | Some(Ok(Ok(()))) => {}
                Some(Ok(Err(error))) => report.fail(error),
                Some(Err(panic)) => std::panic::resume_unwind(panic),
            }
        });
    }

    fn work(&self, bulk: &Bulk, runs: &Runs<'_>) -> ExtractReport {
        let mut report = ExtractReport::default();
        loop {
            let run = runs.take();
            let Some((_, first)) = run.first() else {
                break;
            };
            let dir = self.directories.get(first.dir);
            for (taken, item) in run {
                if self.is_stopped() {
                    return report;
                }
                let made = match &dir {
                    Ok(dir) => self.file(item, (bulk, taken), dir, &mut report),
                    // Retry for each file, so that each reports the error.
                    Err(_) => self
                        .directory_of(item)
                        .and_then(|dir| self.file(item, (bulk, taken), &dir, &mut report)),
                };
                match made {
                    Ok(true) => {
                        report.files += 1;
                        report.bytes = report.bytes.saturating_add(item.entry.metadata.size);
                    }
                    Ok(false) => return report,
                    Err(error) => self.fail(&mut report, error),
                }
                self.progress.advance(0, 1);
            }
        }
        report
    }

    /// Creates a file. Returns whether it is complete; if the extraction is stopped, the incomplete
    /// file is deleted.
    fn file(
        &self,
        item: &Item<'_>,
        data: (&Bulk, TakenFile),
        dir: &OwnedFd,
        report: &mut ExtractReport,
    ) -> Result<bool, ExportError> {
        let attributes = self.attributes(item.entry, report);
        let defaults = self.defaults_in(item.dir);
        let (mode, set_mode) = attributes.first_mode(defaults);
        let make = || rustix::fs::openat(dir, item.name, NEW, mode);
        let made = self.directories.exclusively(dir, item.name, make);
        let file = File::from(made.map_err(super::entry_error(item, "create"))?);
        let copied = self.copy(item, data, &file);
        let copied = match copied {
            Err(ExportError::Image { path, source }) if self.options.salvage => {
                self.salvage(item, &file, ExportError::Image { path, source }, report)
            }
            Ok(true) if self.options.salvage => {
                report.outcomes.push(self.outcome(item));
                Ok(true)
            }
            copied => copied,
        };
        if !matches!(copied, Ok(true)) {
            // An incomplete file under its final name would look complete.
            let _it_may_be_gone = rustix::fs::unlinkat(dir, item.name, AtFlags::empty());
            return copied;
        }
        self.made.note(item.entry.node, &file);
        let path = item.entry.name();
        attributes.set(&file, defaults, set_mode, &mut |loss, error| {
            report.lose(loss, path, Some(error.into()));
        });
        Ok(true)
    }

    /// Writes the readable data of a damaged file and records the rest as lost. Does not create a
    /// file with no readable data.
    fn salvage(
        &self,
        item: &Item<'_>,
        file: &File,
        failed: ExportError,
        report: &mut ExtractReport,
    ) -> Result<bool, ExportError> {
        let size = item.entry.metadata.size;
        let wrong = super::entry_error(item, "write");
        let emptied = file.set_len(0).map_err(&wrong);
        let written = emptied.and_then(|()| {
            visit_readable(self.reader, item.entry.node, size, &mut |at, data| {
                file.write_all_at(data, at).map_err(&wrong)
            })
        });
        let damage = written?;
        let mut outcome = self.outcome(item);
        outcome.lost = damage.lost;
        outcome.error = damage.error.map(|error| error.to_string());
        let state = outcome.state();
        report.outcomes.push(outcome);
        if state == Remains::Lost {
            return Err(failed);
        }
        file.set_len(size).map_err(wrong)?;
        Ok(true)
    }

    fn outcome(&self, item: &Item<'_>) -> SalvagedFile {
        SalvagedFile {
            path: item.entry.name().to_vec(),
            size: Some(item.entry.metadata.size),
            lost: Vec::new(),
            error: None,
            is_guess: self.reader.fs().is_guess(item.entry.node),
        }
    }

    /// Copies a file's data, leaving holes. Returns false if the extraction was stopped.
    fn copy(
        &self,
        item: &Item<'_>,
        (bulk, taken): (&Bulk, TakenFile),
        file: &File,
    ) -> Result<bool, ExportError> {
        let (entry, size) = (item.entry, item.entry.metadata.size);
        let wrong = super::entry_error(item, "write");
        let mut written = 0;
        let mut gather = Gather::new(file);
        let sum = bulk.reader().fs().file_sum(entry.node);
        let mut sum = sum.map_err(|error| failure(entry, error))?;
        let copied = visit_data(bulk.reader(), entry.node, size, &mut |piece| {
            let (mut at, end) = (piece.range.start, piece.range.end);
            while at < end {
                if self.is_stopped() {
                    return Err(Stopped::Early);
                }
                let data = bulk.read(&taken, at..end, piece.extent.as_ref())?;
                if data.is_empty() {
                    return Err(Stopped::Write(io::ErrorKind::UnexpectedEof.into()));
                }
                if let Some(sum) = &mut sum {
                    sum.take(&data);
                }
                let next = at + u64_from(data.len());
                gather.add(at, data).map_err(Stopped::Write)?;
                at = next;
            }
            self.progress.advance(end - written, 0);
            if self.options.sync {
                self.disk_ahead.note(end - written);
            }
            written = end;
            Ok(())
        });
        match copied {
            Ok(()) => {}
            Err(Stopped::Early) => return Ok(false),
            Err(Stopped::Read(error)) => return Err(failure(entry, error)),
            Err(Stopped::Write(error)) => return Err(wrong(error)),
        }
        gather.write().map_err(&wrong)?;
        let sound = sum.map_or(Ok(()), |sum| sum.finish());
        sound.map_err(|error| failure(entry, error))?;
        if written < size {
            file.set_len(size).map_err(wrong)?;
            self.progress.advance(size - written, 0);
        }
        Ok(true)
    }
}

enum Stopped {
    Read(forerun_vfs::Error),
    Write(io::Error),
    Early,
}

impl From<forerun_vfs::Error> for Stopped {
    fn from(error: forerun_vfs::Error) -> Self {
        Self::Read(error)
    }
}
