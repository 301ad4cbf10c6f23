//! Where data blocks are written: to the image, to a temporary file until the inodes are placed, or
//! to another device.

use std::fs::File;
use std::os::unix::fs::FileExt;

use forerun_build::{BuildError, ImageWriter};
use forerun_io::u64_from;

use super::spool::Spool;

pub enum Sink<'s, 'o> {
    Image(&'s mut ImageWriter<'o>),
    Spool(&'s mut Spool),
    Device { file: &'s File, len: u64 },
}

impl Sink<'_, '_> {
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), BuildError> {
        match self {
            Self::Image(out) => out.write(bytes),
            Self::Spool(spool) => spool.append(bytes).map(drop),
            Self::Device { file, len } => {
                let offset = *len;
                file.write_all_at(bytes, offset)
                    .map_err(|source| BuildError::Output { offset, source })?;
                *len += u64_from(bytes.len());
                Ok(())
            }
        }
    }
}
