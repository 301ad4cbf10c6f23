//! Bytes that wait until it is known where they go.
//!
//! Inodes come first in an image, and how long they are depends on how well the data compress; so
//! data that are compressed, and the ends of files that lie behind their inodes, wait. A little waits
//! in memory, more in a temporary file without a name.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use forerun_engine::build::BuildError;
use forerun_io::{saturating_usize, u64_from};

/// Bytes kept in memory.
const MEMORY: usize = 8 << 20;
/// Bytes copied at a time.
const CHUNK: usize = 1 << 20;

/// A part of a [`Spool`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Spooled {
    pub offset: u64,
    pub len: usize,
}

/// Takes bytes at its end, gives them anywhere.
#[derive(Default)]
pub struct Spool {
    /// The file and the bytes in it.
    file: Option<(File, u64)>,
    /// What comes after those.
    recent: Vec<u8>,
}

impl Spool {
    pub fn len(&self) -> u64 {
        self.in_file() + u64_from(self.recent.len())
    }

    pub fn append(&mut self, bytes: &[u8]) -> Result<Spooled, BuildError> {
        let offset = self.len();
        self.recent.extend_from_slice(bytes);
        if self.recent.len() > MEMORY {
            self.spill().map_err(failed)?;
        }
        let len = bytes.len();
        Ok(Spooled { offset, len })
    }

    pub fn read(&self, part: Spooled) -> Result<Vec<u8>, BuildError> {
        let mut bytes = vec![0; part.len];
        self.read_at(part.offset, &mut bytes).map_err(failed)?;
        Ok(bytes)
    }

    /// All of it, in order.
    pub fn drain<E: From<BuildError>>(
        self,
        mut take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut chunk = vec![0; CHUNK];
        let mut at = 0;
        while at < self.in_file() {
            let len = saturating_usize(self.in_file() - at).min(CHUNK);
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
        if self.file.is_none() {
            self.file = Some((tempfile::tempfile()?, 0));
        }
        if let Some((file, len)) = &mut self.file {
            file.write_all_at(&self.recent, *len)?;
            *len += u64_from(self.recent.len());
            self.recent.clear();
        }
        Ok(())
    }

    /// No part lies over the border: only whole ones are spilt.
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        match &self.file {
            Some((file, len)) if offset < *len => file.read_exact_at(out, offset),
            _ => {
                let start = saturating_usize(offset - self.in_file());
                let end = start.saturating_add(out.len());
                let there = self.recent.get(start..end);
                out.copy_from_slice(there.ok_or(io::ErrorKind::UnexpectedEof)?);
                Ok(())
            }
        }
    }
}

fn failed(source: io::Error) -> BuildError {
    BuildError::Host {
        path: std::env::temp_dir(),
        source,
    }
}
