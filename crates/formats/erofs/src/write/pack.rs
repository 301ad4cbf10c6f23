//! Divides files into parts, and finds duplicate files and chunks.
//!
//! One thread decides this in the order of the files, before anything is encoded, so the image does
//! not depend on the number of encoding threads.

use std::collections::{HashMap, HashSet};

use forerun_build::{
    BuildError, ContentHash, ExactStream, Jobs, NodeIndex, ParallelError, Unreadable, WHOLE,
    is_zero,
};
use forerun_io::usize_from;

use super::cannot;
use super::data::{FileData, HOLE};
use super::fetch::{Fetched, Wanted};
use super::options::{ErofsOptions, Fragments};
use super::plan::Plan;
use super::shape::Shapes;

/// Length of the parts in which large files are encoded, each on its own. A multiple of every block
/// size, so every part starts at a block boundary.
pub const PART: u64 = 4 << 20;

pub struct Part {
    pub bytes: Vec<u8>,
    pub role: Role,
}

#[derive(Clone, Copy)]
pub enum Role {
    Body { first: bool, last: bool, room: Room },
    Chunk,
}

/// Which bytes may be stored after the inode or in the packed inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Room {
    /// Whether an uncompressed tail may follow the inode.
    pub tail: bool,
    /// Most bytes of a compressed tail after the inode.
    pub extent: u16,
    /// Which data goes into the packed inode instead.
    pub fragments: Fragments,
}

impl Room {
    /// All data is stored in blocks.
    pub const NONE: Self = Self {
        tail: false,
        extent: 0,
        fragments: Fragments::None,
    };
}

pub struct Packer<'p, 't> {
    plan: &'p Plan<'t>,
    shapes: &'p Shapes,
    options: &'p ErofsOptions,
    jobs: Jobs<'p, Part>,
    files: HashMap<NodeIndex, FileData>,
    bodies: HashMap<Key, usize>,
    /// The length, and the hash of the first bytes, of each long file that may have a duplicate.
    starts: HashSet<(u64, ContentHash)>,
    next_body: usize,
    chunks: HashMap<(u32, ContentHash), u32>,
    next_chunk: u32,
}

/// Length and hash of a body, and where it may be stored.
type Key = (u64, ContentHash, Room);
type Outcome<T> = Result<T, ParallelError<BuildError>>;

impl<'p, 't> Packer<'p, 't> {
    pub fn new(
        plan: &'p Plan<'t>,
        shapes: &'p Shapes,
        options: &'p ErofsOptions,
        jobs: Jobs<'p, Part>,
    ) -> Self {
        Self {
            plan,
            shapes,
            options,
            jobs,
            files: HashMap::with_capacity(plan.walked.files.len()),
            bodies: HashMap::new(),
            starts: HashSet::new(),
            next_body: 0,
            chunks: HashMap::new(),
            next_chunk: 0,
        }
    }

    pub fn add(&mut self, file: Fetched<'t>) -> Outcome<()> {
        let wanted = file.wanted;
        let data = match (self.chunk_size(&wanted), file.whole) {
            (Some(chunk), whole) => {
                let whole = whole.map(|(bytes, _)| bytes);
                FileData::Chunks(self.add_chunks(&wanted, whole, chunk)?)
            }
            (None, Some((bytes, hash))) => {
                let room = self.room(&wanted);
                let key = hash.map(|hash| (wanted.file.len, hash, room));
                match key.and_then(|key| self.bodies.get(&key)) {
                    Some(&body) => FileData::Body(body),
                    None => {
                        self.part(bytes, true, true, room)?;
                        FileData::Body(self.end_body(key))
                    }
                }
            }
            (None, None) => FileData::Body(self.add_long(&wanted)?),
        };
        self.files.insert(wanted.file.node, data);
        Ok(())
    }

    pub fn finish(self) -> HashMap<NodeIndex, FileData> {
        self.files
    }

    fn end_body(&mut self, key: Option<Key>) -> usize {
        let body = self.next_body;
        self.next_body += 1;
        self.bodies.extend(key.map(|key| (key, body)));
        body
    }

    /// Returns which bytes of a file may be stored outside of blocks.
    fn room(&self, wanted: &Wanted<'_>) -> Room {
        let block = u64::from(self.options.block_size);
        let head = self.shapes.head(wanted.file.node);
        let len = wanted.file.len;
        let inline = |inline: bool| inline && head + len % block <= block;
        let packed = self.options.compression.as_ref();
        let extent = match packed.is_some_and(|packed| packed.inline_tails) {
            // Inode, index and inline tail share one block.
            true if head <= 128 && len <= 8 * block && block >= 1024 => block - 256,
            // An inode can always be placed so that half a block after it is free.
            true => block / 2,
            false => 0,
        };
        Room {
            tail: !len.is_multiple_of(block) && inline(self.options.inline_tails),
            extent: u16::try_from(extent).unwrap_or(0),
            fragments: packed.map_or(Fragments::None, |packed| packed.fragments),
        }
    }

    /// Adds a long file. If the hash of its start is new, the file has no duplicate, and it is cut
    /// into parts while it is hashed. Otherwise it is hashed to its end first, and read again only
    /// if it is no duplicate.
    fn add_long(&mut self, wanted: &Wanted<'_>) -> Outcome<usize> {
        let room = self.room(wanted);
        let mut stream = self.open(wanted)?;
        let mut first = self.check(wanted, stream.read(PART))?;
        if wanted.hash {
            let start = first.get(..usize_from(WHOLE)).unwrap_or(&first);
            let start = (wanted.file.len, *blake3::hash(start).as_bytes());
            if !self.starts.insert(start) {
                let mut hasher = blake3::Hasher::new();
                hasher.update(&first);
                while stream.left() > 0 {
                    hasher.update(&self.check(wanted, stream.read(PART))?);
                }
                let key = (wanted.file.len, *hasher.finalize().as_bytes(), room);
                if let Some(&body) = self.bodies.get(&key) {
                    return Ok(body);
                }
                stream = self.open(wanted)?;
                first = self.check(wanted, stream.read(PART))?;
            }
        }
        let mut hasher = wanted.hash.then(blake3::Hasher::new);
        let (mut part, mut is_first) = (first, true);
        loop {
            hasher.iter_mut().for_each(|hasher| {
                hasher.update(&part);
            });
            let last = stream.left() == 0;
            self.part(part, is_first, last, room)?;
            if last {
                break;
            }
            is_first = false;
            part = self.check(wanted, stream.read(PART))?;
        }
        let hash = hasher.map(|hasher| *hasher.finalize().as_bytes());
        Ok(self.end_body(hash.map(|hash| (wanted.file.len, hash, room))))
    }

    /// Returns the chunk size of a chunk-based file. Small files become inline tails instead if
    /// possible.
    fn chunk_size(&self, wanted: &Wanted<'_>) -> Option<u64> {
        let chunked = self.plan.chunked.get(&wanted.file.node);
        let chunk = chunked.copied().or(self.options.chunk_size)?;
        let inline = self.room(wanted).tail && wanted.file.len < u64::from(self.options.block_size);
        (!inline || self.options.has_devices()).then(|| chunk.into())
    }

    fn add_chunks(
        &mut self,
        wanted: &Wanted<'_>,
        whole: Option<Vec<u8>>,
        chunk: u64,
    ) -> Outcome<Vec<u32>> {
        let mut chunks = Vec::new();
        if let Some(bytes) = whole {
            for bytes in bytes.chunks(usize_from(chunk)) {
                chunks.push(self.chunk(bytes.to_vec())?);
            }
            return Ok(chunks);
        }
        let mut stream = self.open(wanted)?;
        while stream.left() > 0 {
            let len = chunk.min(stream.left());
            if self.check(wanted, stream.hole())? >= len {
                self.check(wanted, stream.skip(len))?;
                chunks.push(HOLE);
                continue;
            }
            let bytes = self.check(wanted, stream.read(chunk))?;
            chunks.push(self.chunk(bytes)?);
        }
        Ok(chunks)
    }

    fn chunk(&mut self, bytes: Vec<u8>) -> Outcome<u32> {
        if is_zero(&bytes) {
            return Ok(HOLE);
        }
        let key = if self.options.duplicates {
            let len = u32::try_from(bytes.len()).unwrap_or(0);
            Some((len, *blake3::hash(&bytes).as_bytes()))
        } else {
            None
        };
        if let Some(&chunk) = key.and_then(|key| self.chunks.get(&key)) {
            return Ok(chunk);
        }
        let chunk = self.next_chunk;
        let next = chunk.checked_add(1).filter(|next| *next < HOLE);
        self.next_chunk = next.ok_or_else(|| cannot("4294967295 chunks".to_string()))?;
        self.chunks.extend(key.map(|key| (key, chunk)));
        let weight = bytes.len();
        let role = Role::Chunk;
        self.jobs.send(Part { bytes, role }, weight)?;
        Ok(chunk)
    }

    fn part(&self, bytes: Vec<u8>, first: bool, last: bool, room: Room) -> Outcome<()> {
        let weight = match self.options.compression {
            Some(_) => bytes.len() * 2,
            None => bytes.len(),
        };
        let role = Role::Body { first, last, room };
        self.jobs.send(Part { bytes, role }, weight)
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
