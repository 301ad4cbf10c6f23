//! Divides files into blocks and fragments, and finds duplicates.
//!
//! One thread decides this in the order of the files, before anything is encoded, so the image does
//! not depend on the number of encoding threads. A duplicate file takes no blocks. The blocks of a
//! file and its fragment are looked up separately.

use std::collections::{HashMap, HashSet};

use forerun_build::{
    BuildError, ContentHash, ExactStream, Jobs, NodeIndex, ParallelError, RunHasher, Unreadable,
    WHOLE, is_zero,
};
use forerun_io::{u32_from, u64_from};

use super::fetch::{Fetched, Wanted, Whole};
use super::options::SquashfsOptions;
use super::plan::Plan;

pub struct Job {
    pub bytes: Vec<u8>,
    pub role: Role,
}

#[derive(Clone, Copy)]
pub enum Role {
    Block {
        /// Whether a new body starts here.
        first: bool,
    },
    /// Zeros that are not stored: whole blocks, or the end of a file. The job has no bytes.
    Hole { first: bool, len: u64 },
    /// A block of the ends of several files.
    Fragment,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct FileData {
    /// Number of the body in writing order.
    pub body: Option<usize>,
    /// Number of the fragment block, and the offset in it.
    pub fragment: Option<(u32, u32)>,
}

pub struct Packer<'p, 't> {
    plan: &'p Plan<'t>,
    options: &'p SquashfsOptions,
    jobs: Jobs<'p, Job>,
    files: HashMap<NodeIndex, FileData>,
    bodies: HashMap<(u64, ContentHash), usize>,
    /// The length, and the hash of the first bytes, of each long file that may have a duplicate.
    starts: HashSet<(u64, ContentHash)>,
    tails: HashMap<(usize, ContentHash), (u32, u32)>,
    next_body: usize,
    fragment: Vec<u8>,
    next_fragment: u32,
}

type Outcome<T> = Result<T, ParallelError<BuildError>>;

impl<'p, 't> Packer<'p, 't> {
    pub fn new(plan: &'p Plan<'t>, options: &'p SquashfsOptions, jobs: Jobs<'p, Job>) -> Self {
        Self {
            plan,
            options,
            jobs,
            files: HashMap::with_capacity(plan.walked.files.len()),
            bodies: HashMap::new(),
            starts: HashSet::new(),
            tails: HashMap::new(),
            next_body: 0,
            fragment: Vec::new(),
            next_fragment: 0,
        }
    }

    pub fn add(&mut self, file: Fetched<'t>) -> Outcome<()> {
        let wanted = file.wanted;
        let data = match file.whole {
            Some(whole) => self.add_whole(&wanted, whole)?,
            None => self.add_long(&wanted)?,
        };
        self.files.insert(wanted.file.node, data);
        Ok(())
    }

    /// Sends the last fragment block to be encoded.
    pub fn finish(mut self) -> Outcome<HashMap<NodeIndex, FileData>> {
        self.end_fragment()?;
        Ok(self.files)
    }

    fn add_whole(&mut self, wanted: &Wanted<'_>, whole: Whole) -> Outcome<FileData> {
        let mut data = FileData::default();
        if !whole.body.is_empty() {
            let key = whole.body_hash.map(|hash| (wanted.body_len, hash));
            data.body = match key.and_then(|key| self.bodies.get(&key)) {
                Some(&body) => Some(body),
                None => Some(self.new_body(&whole.body, key)?),
            };
        }
        data.fragment = self.tail(&whole.tail, whole.tail_hash)?;
        Ok(data)
    }

    fn new_body(&mut self, bytes: &[u8], key: Option<(u64, ContentHash)>) -> Outcome<usize> {
        let mut first = true;
        for block in bytes.chunks(self.options.block()) {
            self.block(block.to_vec(), &mut first)?;
        }
        Ok(self.end_body(key))
    }

    fn end_body(&mut self, key: Option<(u64, ContentHash)>) -> usize {
        let body = self.next_body;
        self.next_body += 1;
        self.bodies.extend(key.map(|key| (key, body)));
        body
    }

    /// Adds a long file. If the hash of its start is new, the file has no duplicate, and it is cut
    /// into blocks while it is hashed. Otherwise it is hashed to its end first, and read again only
    /// if it is no duplicate.
    fn add_long(&mut self, wanted: &Wanted<'_>) -> Outcome<FileData> {
        let mut stream = self.open(wanted)?;
        let mut start = None;
        if wanted.hash_body && wanted.body_len > WHOLE {
            let bytes = self.check(wanted, stream.read(WHOLE))?;
            let key = (wanted.body_len, *blake3::hash(&bytes).as_bytes());
            if !self.starts.insert(key) {
                if let Some(data) = self.twin(wanted, &bytes, stream)? {
                    return Ok(data);
                }
                stream = self.open(wanted)?;
            } else {
                start = Some(bytes);
            }
        }
        let body = self.stream_body(wanted, start, &mut stream)?;
        let fragment = self.stream_tail(wanted, stream)?;
        Ok(FileData {
            body: Some(body),
            fragment,
        })
    }

    fn twin(
        &mut self,
        wanted: &Wanted<'_>,
        start: &[u8],
        mut stream: ExactStream,
    ) -> Outcome<Option<FileData>> {
        let mut hasher = RunHasher::default();
        hasher.data(start);
        let mut left = wanted.body_len - u64_from(start.len());
        while left > 0 {
            let hole = self.hole(wanted, &mut stream, left)?;
            if hole > 0 {
                hasher.zeros(hole);
                left -= hole;
                continue;
            }
            let len = left.min(u64::from(self.options.block_size));
            hasher.data(&self.check(wanted, stream.read(len))?);
            left -= len;
        }
        let key = (wanted.body_len, hasher.finish());
        let Some(&body) = self.bodies.get(&key) else {
            return Ok(None);
        };
        let fragment = self.stream_tail(wanted, stream)?;
        Ok(Some(FileData {
            body: Some(body),
            fragment,
        }))
    }

    /// Adds the blocks of a file from a stream. `start` holds the bytes that were already read.
    fn stream_body(
        &mut self,
        wanted: &Wanted<'_>,
        start: Option<Vec<u8>>,
        stream: &mut ExactStream,
    ) -> Outcome<usize> {
        let mut hasher = wanted.hash_body.then(RunHasher::default);
        let mut first = true;
        let start = start.unwrap_or_default();
        hasher.iter_mut().for_each(|hasher| hasher.data(&start));
        // `start` is a whole number of blocks: both lengths are powers of two, and its length is at
        // least the largest block size.
        for block in start.chunks(self.options.block()) {
            self.block(block.to_vec(), &mut first)?;
        }
        let mut left = wanted.body_len - u64_from(start.len());
        while left > 0 {
            let hole = if self.options.sparse {
                self.hole(wanted, stream, left)?
            } else {
                0
            };
            if hole > 0 {
                hasher.iter_mut().for_each(|hasher| hasher.zeros(hole));
                let first = std::mem::take(&mut first);
                self.send(Vec::new(), Role::Hole { first, len: hole })?;
                left -= hole;
                continue;
            }
            let len = left.min(u64::from(self.options.block_size));
            let block = self.check(wanted, stream.read(len))?;
            hasher.iter_mut().for_each(|hasher| hasher.data(&block));
            self.block(block, &mut first)?;
            left -= len;
        }
        let hash = hasher.map(RunHasher::finish);
        Ok(self.end_body(hash.map(|hash| (wanted.body_len, hash))))
    }

    /// Skips the whole blocks of a hole, or all `left` bytes if the hole covers them. Returns the
    /// number of bytes skipped.
    fn hole(&self, wanted: &Wanted<'_>, stream: &mut ExactStream, left: u64) -> Outcome<u64> {
        let hole = self.check(wanted, stream.hole())?.min(left);
        let whole = if hole == left {
            hole
        } else {
            hole - hole % u64::from(self.options.block_size)
        };
        if whole > 0 {
            self.check(wanted, stream.skip(whole))?;
        }
        Ok(whole)
    }

    fn stream_tail(
        &mut self,
        wanted: &Wanted<'_>,
        mut stream: ExactStream,
    ) -> Outcome<Option<(u32, u32)>> {
        let len = wanted.file.len - wanted.body_len;
        let tail = self.check(wanted, stream.read(len))?;
        let hash = wanted.hash_tail.then(|| *blake3::hash(&tail).as_bytes());
        self.tail(&tail, hash)
    }

    fn tail(&mut self, tail: &[u8], hash: Option<ContentHash>) -> Outcome<Option<(u32, u32)>> {
        if tail.is_empty() {
            return Ok(None);
        }
        let key = hash.map(|hash| (tail.len(), hash));
        if let Some(&place) = key.and_then(|key| self.tails.get(&key)) {
            return Ok(Some(place));
        }
        if self.fragment.len() + tail.len() > self.options.block() {
            self.end_fragment()?;
        }
        let offset = u32_from(u64_from(self.fragment.len()));
        self.fragment.extend_from_slice(tail);
        let place = (self.next_fragment, offset);
        self.tails.extend(key.map(|key| (key, place)));
        Ok(Some(place))
    }

    fn end_fragment(&mut self) -> Outcome<()> {
        if self.fragment.is_empty() {
            return Ok(());
        }
        let next = Vec::with_capacity(self.options.block());
        let bytes = std::mem::replace(&mut self.fragment, next);
        self.next_fragment = match self.next_fragment.checked_add(1) {
            Some(next) if next < u32::MAX => next,
            _ => return Err(super::cannot("4294967295 fragment blocks".to_string()).into()),
        };
        self.send(bytes, Role::Fragment)
    }

    fn block(&mut self, bytes: Vec<u8>, first: &mut bool) -> Outcome<()> {
        let first = std::mem::take(first);
        if self.options.sparse && is_zero(&bytes) {
            let len = u64_from(bytes.len());
            self.send(Vec::new(), Role::Hole { first, len })
        } else {
            self.send(bytes, Role::Block { first })
        }
    }

    fn send(&self, bytes: Vec<u8>, role: Role) -> Outcome<()> {
        let weight = bytes.len();
        self.jobs.send(Job { bytes, role }, weight)
    }

    fn open(&self, wanted: &Wanted<'_>) -> Outcome<ExactStream> {
        let stream = ExactStream::open(wanted.file.content, wanted.file.len);
        self.check(wanted, stream)
    }

    fn check<T>(&self, wanted: &Wanted<'_>, result: Result<T, Unreadable>) -> Outcome<T> {
        let failed = |reason| self.plan.walked.unreadable(&wanted.file, reason).into();
        result.map_err(failed)
    }
}
