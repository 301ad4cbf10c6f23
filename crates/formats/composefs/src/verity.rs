//! Computes fs-verity digests in userspace.
//!
//! The file is split into blocks of 4 KiB, the last one padded with zeros. Their concatenated
//! hashes are split into blocks again, and so on until one hash is left. The digest is the hash of
//! a descriptor of 256 bytes, which contains this root hash and the file's length. There is no
//! salt. The kernel's Documentation/filesystems/fsverity.rst describes the method. Hashes are
//! SHA-256 or SHA-512.

use std::io::{self, Read};
use std::marker::PhantomData;

use forerun_io::u64_from;
use sha2::digest::Output;
use sha2::{Sha256, Sha512};

use crate::digest::{Algorithm, Digest};

pub const BLOCK: usize = 4096;

const CHUNK: usize = 256 << 10;

const DESCRIPTOR_LEN: usize = 256;

impl Algorithm {
    /// Returns the algorithm with this name: `sha256` or `sha512`.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        match name {
            "sha256" => Some(Self::Sha256),
            "sha512" => Some(Self::Sha512),
            _ => None,
        }
    }

    #[must_use]
    pub fn digest(self, bytes: &[u8]) -> Digest {
        let mut hasher = VerityHasher::new(self);
        hasher.update(bytes);
        hasher.finish()
    }

    /// Computes the digest and the length of a stream.
    pub fn measure(self, stream: impl Read) -> io::Result<(Digest, u64)> {
        let mut hasher = VerityHasher::new(self);
        let len = read_all(stream, |bytes| hasher.update(bytes))?;
        Ok((hasher.finish(), len))
    }

    /// Computes the digests of a stream by all algorithms.
    pub fn measure_all(stream: impl Read) -> io::Result<[Digest; 2]> {
        let mut hashers = [Self::Sha256, Self::Sha512].map(VerityHasher::new);
        read_all(stream, |bytes| {
            hashers.iter_mut().for_each(|hasher| hasher.update(bytes));
        })?;
        Ok(hashers.map(VerityHasher::finish))
    }
}

/// Passes all bytes of a stream to `visit`. Returns their number.
fn read_all(mut stream: impl Read, mut visit: impl FnMut(&[u8])) -> io::Result<u64> {
    let mut buffer = vec![0; CHUNK];
    let mut total = 0;
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(total),
            Ok(len) => {
                visit(&buffer[..len]);
                total += u64_from(len);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// A digest computation. Its memory grows only with the depth of the hash tree.
pub enum VerityHasher {
    Sha256(Hasher<Sha256>),
    Sha512(Hasher<Sha512>),
}

impl VerityHasher {
    pub fn new(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Sha256 => Self::Sha256(Hasher::default()),
            Algorithm::Sha512 => Self::Sha512(Hasher::default()),
        }
    }

    /// Adds the next bytes of the file.
    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(hasher) => hasher.update(bytes),
            Self::Sha512(hasher) => hasher.update(bytes),
        }
    }

    /// Returns the digest of all added bytes.
    pub fn finish(self) -> Digest {
        match self {
            Self::Sha256(hasher) => Digest::Sha256(hasher.finish(1).into()),
            Self::Sha512(hasher) => Digest::Sha512(hasher.finish(2).into()),
        }
    }
}

pub struct Hasher<H> {
    /// The unfinished data block.
    block: Block,
    /// The unfinished block of hashes of each tree level.
    levels: Vec<Block>,
    len: u64,
    hash: PhantomData<H>,
}

impl<H> Default for Hasher<H> {
    fn default() -> Self {
        Self {
            block: Block::new(),
            levels: Vec::new(),
            len: 0,
            hash: PhantomData,
        }
    }
}

impl<H: sha2::Digest> Hasher<H> {
    fn update(&mut self, mut bytes: &[u8]) {
        self.len += u64_from(bytes.len());
        if self.block.len > 0 {
            bytes = self.block.fill(bytes);
            if !self.block.is_full() {
                return;
            }
            let hash = self.block.take_hash::<H>();
            self.add(0, hash);
        }
        let mut blocks = bytes.chunks_exact(BLOCK);
        for block in &mut blocks {
            self.add(0, H::digest(block));
        }
        self.block.fill(blocks.remainder());
    }

    /// Returns the digest of all added bytes. `algorithm` is the algorithm's number in the
    /// descriptor.
    fn finish(mut self, algorithm: u8) -> Output<H> {
        if self.block.len > 0 {
            let hash = self.block.take_hash::<H>();
            self.add(0, hash);
        }
        let root = self.root();
        let mut descriptor = [0; DESCRIPTOR_LEN];
        // Version 1, the algorithm, log2 of the block size, no salt, no signature.
        descriptor[..4].copy_from_slice(&[1, algorithm, 12, 0]);
        descriptor[8..16].copy_from_slice(&self.len.to_le_bytes());
        descriptor[16..16 + root.len()].copy_from_slice(&root);
        H::digest(descriptor)
    }

    /// Returns the root hash: zeros for an empty file, otherwise completes the unfinished blocks
    /// level by level.
    fn root(&mut self) -> Output<H> {
        let mut level = 0;
        loop {
            let levels = self.levels.len();
            let Some(block) = self.levels.get_mut(level) else {
                return Output::<H>::default();
            };
            let mut first = Output::<H>::default();
            let hash_len = first.len();
            if level + 1 == levels && block.len == hash_len {
                first.copy_from_slice(&block.bytes[..hash_len]);
                return first;
            }
            if block.len > 0 {
                let hash = block.take_hash::<H>();
                self.add(level + 1, hash);
            }
            level += 1;
        }
    }

    /// Adds a hash to a level. A full block of hashes becomes one hash of the next level.
    fn add(&mut self, mut level: usize, mut hash: Output<H>) {
        loop {
            if level == self.levels.len() {
                self.levels.push(Block::new());
            }
            let block = &mut self.levels[level];
            block.fill(&hash);
            if !block.is_full() {
                return;
            }
            hash = block.take_hash::<H>();
            level += 1;
        }
    }
}

struct Block {
    bytes: Box<[u8; BLOCK]>,
    len: usize,
}

impl Block {
    fn new() -> Self {
        Self {
            bytes: Box::new([0; BLOCK]),
            len: 0,
        }
    }

    const fn is_full(&self) -> bool {
        self.len == BLOCK
    }

    /// Fills the block, and returns the bytes that do not fit.
    fn fill<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let (now, rest) = bytes.split_at(bytes.len().min(BLOCK - self.len));
        self.bytes[self.len..self.len + now.len()].copy_from_slice(now);
        self.len += now.len();
        rest
    }

    /// Returns the hash of the zero-padded block, and empties it.
    fn take_hash<H: sha2::Digest>(&mut self) -> Output<H> {
        self.bytes[self.len..].fill(0);
        self.len = 0;
        H::digest(&self.bytes[..])
    }
}
