//! Streams a layout into the output.

use std::io::{self, Read, Write};
use std::sync::Arc;

use forerun_build::{BuildError, NodeKind, Tree};
use forerun_io::{CountedWrite, Observer, u32_from, u64_from, usize_from};
use zerocopy::IntoBytes;

use super::RomfsOptions;
use super::layout::{Item, Layout};
use crate::header::padded;
use crate::ondisk::{self, CHECKSUMMED, FileHeader, MAGIC, Superblock};

/// Images are padded to this, as the reference tool does. The padding does not count in the full
/// size.
const IMAGE_ALIGN: u64 = 1024;
/// Number of bytes of a file copied at a time, and of headers written at a time.
const CHUNK: usize = 1 << 20;

pub fn emit(
    tree: &Tree,
    options: &RomfsOptions,
    layout: &Layout,
    out: &mut dyn Write,
    observer: &Arc<Observer>,
) -> Result<u64, BuildError> {
    let counted = CountedWrite::new(out, Arc::clone(observer));
    let mut out = Output {
        out: io::BufWriter::with_capacity(CHUNK, counted),
        head: Vec::new(),
        position: 0,
    };
    let mut chunk = vec![0; CHUNK];
    out.bytes(&superblock(options, layout.full_size))?;
    for item in &layout.items {
        out.pad_to(item.offset)?;
        out.bytes(&header(item))?;
        let Some(index) = item.data else { continue };
        match &tree.node(index).kind {
            NodeKind::Symlink(target) => out.bytes(target)?,
            NodeKind::File { len, content } => {
                let failed = |reason: String| BuildError::Content {
                    path: layout.path(item),
                    reason,
                };
                let mut content = content
                    .open(*len)
                    .map_err(|error| failed(error.to_string()))?;
                out.copy(&mut content, *len, &mut chunk, &failed)?;
            }
            NodeKind::Directory(_)
            | NodeKind::BlockDevice(_)
            | NodeKind::CharDevice(_)
            | NodeKind::Fifo
            | NodeKind::Socket => {}
        }
    }
    out.pad_to(layout.full_size.next_multiple_of(IMAGE_ALIGN))?;
    out.finish()
}

fn superblock(options: &RomfsOptions, full_size: u64) -> Vec<u8> {
    let raw = Superblock {
        magic: MAGIC,
        full_size: word(full_size),
        checksum: 0.into(),
    };
    let mut bytes = raw.as_bytes().to_vec();
    push_name(&mut bytes, &options.volume_name);
    bytes
}

fn header(item: &Item) -> Vec<u8> {
    let mut raw = FileHeader {
        next: (word(item.next).get() | item.bits).into(),
        spec_info: word(item.spec_info),
        size: word(item.size),
        checksum: 0.into(),
    };
    let mut name = Vec::new();
    push_name(&mut name, &item.name);
    let sum = ondisk::checksum(raw.as_bytes()).wrapping_add(ondisk::checksum(&name));
    raw.checksum = sum.wrapping_neg().into();
    let mut bytes = raw.as_bytes().to_vec();
    bytes.extend_from_slice(&name);
    bytes
}

fn push_name(bytes: &mut Vec<u8>, name: &[u8]) {
    let end = bytes.len() + usize_from(padded(name.len()));
    bytes.extend_from_slice(name);
    bytes.resize(end, 0);
}

/// Converts a value that the layout has checked to be below 4 GiB.
fn word(value: u64) -> zerocopy::byteorder::big_endian::U32 {
    u32_from(value).into()
}

/// The output, whose first 512 bytes are held back until their checksum is known.
struct Output<'o> {
    out: io::BufWriter<CountedWrite<&'o mut dyn Write>>,
    head: Vec<u8>,
    position: u64,
}

impl Output<'_> {
    fn bytes(&mut self, mut bytes: &[u8]) -> Result<(), BuildError> {
        if self.position < CHECKSUMMED {
            let room = usize_from(CHECKSUMMED - self.position).min(bytes.len());
            let (head, rest) = bytes.split_at(room);
            self.head.extend_from_slice(head);
            self.position += u64_from(room);
            bytes = rest;
            if self.position == CHECKSUMMED {
                let sum = ondisk::checksum(&self.head).wrapping_neg();
                if let Some(checksum) = self.head.get_mut(12..16) {
                    checksum.copy_from_slice(&sum.to_be_bytes());
                }
                let written = self.out.write_all(&self.head);
                written.map_err(|source| BuildError::Output { offset: 0, source })?;
            }
        }
        let offset = self.position;
        self.out
            .write_all(bytes)
            .map_err(|source| BuildError::Output { offset, source })?;
        self.position += u64_from(bytes.len());
        Ok(())
    }

    fn pad_to(&mut self, offset: u64) -> Result<(), BuildError> {
        let zeros = [0; 4096];
        while self.position < offset {
            let len = usize_from(offset - self.position).min(zeros.len());
            self.bytes(&zeros[..len])?;
        }
        Ok(())
    }

    /// Copies exactly `len` bytes. Fails if the file has more or fewer, because it has changed
    /// then.
    fn copy(
        &mut self,
        content: &mut dyn Read,
        len: u64,
        chunk: &mut [u8],
        failed: &dyn Fn(String) -> BuildError,
    ) -> Result<(), BuildError> {
        let mut left = len;
        loop {
            let got = match content.read(chunk) {
                Ok(got) => got,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(failed(error.to_string())),
            };
            if got == 0 && left == 0 {
                return Ok(());
            }
            if got == 0 || u64_from(got) > left {
                let now = if got == 0 { "shorter" } else { "longer" };
                return Err(failed(format!(
                    "the file is {now} than the {len} bytes it had when it was scanned"
                )));
            }
            self.bytes(&chunk[..got])?;
            left -= u64_from(got);
        }
    }

    fn finish(mut self) -> Result<u64, BuildError> {
        let offset = self.position;
        self.out
            .flush()
            .map_err(|source| BuildError::Output { offset, source })?;
        Ok(offset)
    }
}
