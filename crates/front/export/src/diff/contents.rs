//! Compares contents byte for byte: several pairs of files at a time, with readahead on both sides.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;

use forerun_engine::{Bulk, Data, EngineOptions, Reader};
use forerun_io::{Unpoisoned, u64_from, usize_from};
use forerun_vfs::NodeId;
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use super::entry::Entry;
use super::{Change, Difference, Side, host, image};
use crate::content::CHUNK;
use crate::{ExportError, Progress};

/// Two regular files of the same length.
#[derive(Clone, Copy)]
pub struct Pair<'t> {
    pub old: &'t Entry,
    pub new: &'t Entry,
}

/// The differences found, unordered.
#[derive(Default)]
pub struct Outcome {
    pub differences: Vec<Difference>,
    pub bytes: u64,
    pub failures: (Vec<ExportError>, Vec<ExportError>),
}

pub fn compare(
    left: Side<'_>,
    right: Side<'_>,
    mut pairs: Vec<Pair<'_>>,
    threads: usize,
    progress: &dyn Progress,
) -> Outcome {
    // The files to read are known in advance, so guessing readahead is disabled.
    let quiet = [left, right].map(|side| match side {
        Side::Image(reader) => Some(reader.without_guesses()),
        Side::Directory(_) => None,
    });
    let [left, right] = [(left, &quiet[0]), (right, &quiet[1])]
        .map(|(side, quiet)| quiet.as_ref().map_or(side, Side::Image));
    // Compare hard-linked files once, and report the first name.
    let mut seen = HashSet::new();
    pairs.retain(|pair| seen.insert((pair.old.id, pair.new.id)));
    let bytes = pairs.iter().map(|pair| pair.old.metadata.size);
    progress.begin(bytes.fold(0, u64::saturating_add), u64_from(pairs.len()));
    sort(left, right, &mut pairs);
    let job = CompareJob {
        left,
        right,
        queue: Mutex::new(Queue {
            next: 0,
            left: bulk(left, pairs.iter().map(|pair| pair.old)),
            right: bulk(right, pairs.iter().map(|pair| pair.new)),
        }),
        pairs,
        progress,
    };
    let options = EngineOptions {
        threads,
        ..EngineOptions::default()
    };
    let threads = options.pool_threads();
    let mut all = Outcome::default();
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads.min(job.pairs.len()))
            .map(|_| scope.spawn(|| job.work()))
            .collect();
        all.add(job.work());
        for thread in others {
            match thread.join() {
                Ok(outcome) => all.add(outcome),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
    all
}

/// Sorts the pairs by image offset: the left image's if both sides are images.
fn sort(left: Side<'_>, right: Side<'_>, pairs: &mut [Pair<'_>]) {
    let order = |reader: &Reader, nodes: Vec<NodeId>| {
        let mut nodes = nodes;
        reader.physical_order(&mut nodes);
        let places = nodes.into_iter().enumerate();
        places
            .map(|(place, node)| (node, place))
            .collect::<std::collections::HashMap<_, _>>()
    };
    match (left, right) {
        (Side::Image(reader), _) => {
            let nodes = pairs.iter().map(|pair| image::node(pair.old)).collect();
            let places = order(reader, nodes);
            pairs.sort_by_key(|pair| places.get(&image::node(pair.old)).copied());
        }
        (Side::Directory(_), Side::Image(reader)) => {
            let nodes = pairs.iter().map(|pair| image::node(pair.new)).collect();
            let places = order(reader, nodes);
            pairs.sort_by_key(|pair| places.get(&image::node(pair.new)).copied());
        }
        (Side::Directory(_), Side::Directory(_)) => {}
    }
}

fn bulk<'t>(side: Side<'_>, entries: impl Iterator<Item = &'t Entry>) -> Option<Bulk> {
    match side {
        Side::Image(reader) => Some(reader.bulk(entries.map(image::node).collect())),
        Side::Directory(_) => None,
    }
}

struct CompareJob<'j> {
    left: Side<'j>,
    right: Side<'j>,
    queue: Mutex<Queue>,
    pairs: Vec<Pair<'j>>,
    progress: &'j dyn Progress,
}

/// A pair is taken from both bulk streams at once to keep them in step.
struct Queue {
    next: usize,
    left: Option<Bulk>,
    right: Option<Bulk>,
}

impl CompareJob<'_> {
    fn take(&self) -> Option<Pair<'_>> {
        let mut queue = self.queue.lock().unpoisoned();
        let pair = self.pairs.get(queue.next).copied()?;
        queue.next += 1;
        for bulk in [&queue.left, &queue.right].into_iter().flatten() {
            bulk.take();
        }
        Some(pair)
    }

    fn work(&self) -> Outcome {
        let mut outcome = Outcome::default();
        while let Some(pair) = self.take() {
            let size = pair.old.metadata.size;
            match self.first_difference(&pair) {
                Ok(found) => {
                    outcome.bytes = outcome.bytes.saturating_add(found.unwrap_or(size));
                    outcome.differences.extend(found.map(|at| Difference {
                        path: pair.old.path.clone(),
                        change: Change::Content(at),
                    }));
                }
                Err(Unread::Left(error)) => outcome.failures.0.push(error),
                Err(Unread::Right(error)) => outcome.failures.1.push(error),
            }
            self.progress.advance(size, 1);
        }
        outcome
    }

    fn first_difference(&self, pair: &Pair<'_>) -> Result<Option<u64>, Unread> {
        let size = pair.old.metadata.size;
        let old = Source::open(self.left, pair.old).map_err(Unread::Left)?;
        let new = Source::open(self.right, pair.new).map_err(Unread::Right)?;
        let mut buffers = (Vec::new(), Vec::new());
        let mut at = 0;
        while at < size {
            // Skip ranges that are holes on both sides.
            let data = old.next_data(at, size).map_err(Unread::Left)?;
            if data > at {
                at = data.min(new.next_data(at, size).map_err(Unread::Right)?);
                if at >= size {
                    break;
                }
            }
            let len = (size - at).min(CHUNK);
            let left = old.read(at, len, &mut buffers.0).map_err(Unread::Left)?;
            let right = new.read(at, len, &mut buffers.1).map_err(Unread::Right)?;
            if *left != *right {
                let differs = |(left, right)| left != right;
                let first = left.iter().zip(right.iter()).position(differs);
                return Ok(Some(at + u64_from(first.unwrap_or(0))));
            }
            at += len;
        }
        Ok(None)
    }
}

/// The side that could not be read.
enum Unread {
    Left(ExportError),
    Right(ExportError),
}

enum Source<'s> {
    Image(&'s Reader, &'s Entry),
    Host(File, &'s Entry),
}

enum Bytes<'b> {
    Image(Data),
    Host(&'b [u8]),
}

impl std::ops::Deref for Bytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Image(data) => data,
            Self::Host(bytes) => bytes,
        }
    }
}

impl<'s> Source<'s> {
    fn open(side: Side<'s>, entry: &'s Entry) -> Result<Self, ExportError> {
        match side {
            Side::Image(reader) => Ok(Self::Image(reader, entry)),
            Side::Directory(root) => open_host(root, entry).map(|file| Self::Host(file, entry)),
        }
    }

    /// Returns the first offset at or after `at` that is not in a hole; `size` if there is none.
    fn next_data(&self, at: u64, size: u64) -> Result<u64, ExportError> {
        match self {
            Self::Image(reader, entry) => {
                let next = reader.seek_data(image::node(entry), at);
                let next = next.map_err(|error| ExportError::image(&entry.path, error))?;
                Ok(next.unwrap_or(size))
            }
            Self::Host(file, entry) => match rustix::fs::seek(file, SeekFrom::Data(at)) {
                Ok(next) => Ok(next.min(size)),
                Err(Errno::NXIO) => Ok(size),
                // The filesystem does not report holes; treat everything as data.
                Err(Errno::INVAL) => Ok(at),
                Err(error) => Err(host::host_error(&entry.path, error.into())),
            },
        }
    }

    fn read<'b>(
        &self,
        at: u64,
        len: u64,
        buffer: &'b mut Vec<u8>,
    ) -> Result<Bytes<'b>, ExportError> {
        let len = usize_from(len);
        match self {
            Self::Image(reader, entry) => {
                let data = reader.read(image::node(entry), at, len);
                let data = data.map_err(|error| ExportError::image(&entry.path, error))?;
                if data.len() < len {
                    let error = io::ErrorKind::UnexpectedEof.into();
                    return Err(host::host_error(&entry.path, error));
                }
                Ok(Bytes::Image(data))
            }
            Self::Host(file, entry) => {
                buffer.resize(len, 0);
                let read = file.read_exact_at(buffer, at);
                read.map_err(|error| host::host_error(&entry.path, error))?;
                Ok(Bytes::Host(buffer))
            }
        }
    }
}

fn open_host(root: &Path, entry: &Entry) -> Result<File, ExportError> {
    host::open(root, &entry.path).map_err(|error| host::host_error(&entry.path, error))
}

impl Outcome {
    fn add(&mut self, other: Self) {
        self.differences.extend(other.differences);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.failures.0.extend(other.failures.0);
        self.failures.1.extend(other.failures.1);
    }
}
