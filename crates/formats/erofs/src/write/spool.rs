//! Bytes that wait until their position in the image is known.
//!
//! Inodes come first in an image, and their lengths depend on how well the data compresses. So
//! compressed data and inline tails have to wait: the first bytes in memory, more in an unnamed
//! temporary file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use forerun_build::{BuildError, spool_dir, spool_file};
use forerun_io::{u64_from, usize_from};
use forerun_sys::memory_limit::MemoryLimit;

/// Bytes kept in memory if memory is not scarce.
const MEMORY: u64 = 8 << 20;
const CHUNK: usize = 1 << 20;

#[derive(Clone, Copy, Debug, Default)]
pub struct Spooled {
    pub offset: u64,
    pub len: usize,
}

/// A byte store that appends at the end and reads anywhere.
pub struct Spool {
    /// Most bytes kept in memory.
    most: usize,
    /// The temporary file and its length.
    file: Option<(File, u64)>,
    /// The bytes after those in the file.
    recent: Vec<u8>,
}

impl Default for Spool {
    fn default() -> Self {
        Self::keeping(usize_from(MemoryLimit::of_process().eighth(8 * MEMORY) / 8))
    }
}

impl Spool {
    const fn keeping(most: usize) -> Self {
        Self {
            most,
            file: None,
            recent: Vec::new(),
        }
    }

    pub fn len(&self) -> u64 {
        self.in_file() + u64_from(self.recent.len())
    }

    pub fn append(&mut self, bytes: &[u8]) -> Result<Spooled, BuildError> {
        if self.recent.len() + bytes.len() > self.most {
            self.spill().map_err(failed)?;
        }
        let (offset, len) = (self.len(), bytes.len());
        if len > self.most {
            self.append_to_file(bytes).map_err(failed)?
        } else {
            // Reserve the maximum at once: doubling would exceed it.
            self.recent.reserve_exact(self.most - self.recent.len());
            self.recent.extend_from_slice(bytes);
        }
        Ok(Spooled { offset, len })
    }

    pub fn read(&self, part: Spooled) -> Result<Vec<u8>, BuildError> {
        let mut bytes = vec![0; part.len];
        self.read_at(part.offset, &mut bytes).map_err(failed)?;
        Ok(bytes)
    }

    /// Passes all bytes to `take` in order.
    pub fn drain<E: From<BuildError>>(
        self,
        mut take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut chunk = vec![0; CHUNK];
        let mut at = 0;
        while at < self.in_file() {
            let len = usize_from(self.in_file() - at).min(CHUNK);
            let bytes = chunk.get_mut(..len).unwrap_or_default();
            self.read_at(at, bytes).map_err(failed)?;
            take(bytes)?;
            at += u64_from(len);
        }
        take(&self.recent)
    }

    fn in_file(&self) -> u64 {
        self.file.as_ref().map_or(0, |(_, len)| *len)
    }

    fn spill(&mut self) -> io::Result<()> {
        let mut recent = std::mem::take(&mut self.recent);
        if !recent.is_empty() {
            self.append_to_file(&recent)?;
        }
        recent.clear();
        self.recent = recent;
        Ok(())
    }

    /// Appends bytes to the file. Memory must hold no earlier bytes.
    fn append_to_file(&mut self, bytes: &[u8]) -> io::Result<()> {
        let (file, len) = match &mut self.file {
            Some(there) => there,
            none => none.insert((spool_file()?, 0)),
        };
        file.write_all_at(bytes, *len)?;
        *len += u64_from(bytes.len());
        Ok(())
    }

    /// Reads bytes of one part. A part is either in the file or in memory, because only whole parts
    /// are moved.
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        match &self.file {
            Some((file, len)) if offset < *len => file.read_exact_at(out, offset),
            _ => {
                let start = usize_from(offset - self.in_file());
                let there = self.recent.get(start..start + out.len());
                out.copy_from_slice(there.ok_or(io::ErrorKind::UnexpectedEof)?);
                Ok(())
            }
        }
    }
}

fn failed(source: io::Error) -> BuildError {
    BuildError::Host {
        path: spool_dir(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spool_keeps_no_more_than_its_bound_in_memory() {
        let mut spool = Spool::keeping(100);
        let mut all = Vec::new();
        let mut parts = Vec::new();
        for len in [40, 60, 1, 0, 99, 100, 101, 500, 7, 93, 3] {
            let byte = u8::try_from(parts.len()).unwrap();
            let bytes = vec![byte; len];
            parts.push((spool.append(&bytes).unwrap(), bytes.clone()));
            all.extend(bytes);
            assert!(spool.recent.capacity() <= 100, "after {len}");
            assert_eq!(spool.len(), u64_from(all.len()));
        }
        for (part, bytes) in parts {
            assert_eq!(spool.read(part).unwrap(), bytes);
        }
        let mut drained = Vec::new();
        let taken = spool.drain(|bytes| {
            drained.extend_from_slice(bytes);
            Ok::<_, BuildError>(())
        });
        taken.unwrap();
        assert_eq!(drained, all);
    }
}
