//! The packed inode: fragments of many files, compressed as one file.
//!
//! Encoding decides which data become fragments, so the packed inode is complete only after all
//! files are encoded. Until then its bytes are in a temporary file. Equal fragments are stored
//! once.

use std::collections::HashMap;

use forerun_build::{BuildError, ContentHash, ParallelBounds, parallel_map};
use forerun_io::{u64_from, usize_from};

use super::data::PackedInode;
use super::encode::Worker;
use super::options::ErofsOptions;
use super::pack::{PART, Part, Role, Room};
use super::spool::Spool;
use super::store::Store;

#[derive(Default)]
pub struct Collected {
    bytes: Spool,
    known: HashMap<(usize, ContentHash), u64>,
}

impl Collected {
    /// Adds a fragment unless an equal one is stored. Returns its offset.
    pub fn add(&mut self, fragment: &[u8]) -> Result<u64, BuildError> {
        let key = (fragment.len(), *blake3::hash(fragment).as_bytes());
        if let Some(&offset) = self.known.get(&key) {
            return Ok(offset);
        }
        let offset = self.append(fragment)?;
        self.known.insert(key, offset);
        Ok(offset)
    }

    /// Appends one part of a longer fragment. Returns the part's offset.
    pub fn append(&mut self, bytes: &[u8]) -> Result<u64, BuildError> {
        Ok(self.bytes.append(bytes)?.offset)
    }
}

pub fn write_packed(
    store: &mut Store<'_, '_, '_>,
    options: &ErofsOptions,
    bounds: ParallelBounds,
) -> Result<Option<PackedInode>, BuildError> {
    let bytes = store.take_fragments().bytes;
    let len = bytes.len();
    if len == 0 {
        return Ok(None);
    }
    parallel_map(
        bounds,
        || {
            let mut worker = Worker::new(options)?;
            Ok(move |part| Ok(worker.encode(part)))
        },
        |jobs| {
            let (mut part, mut at) = (Vec::new(), 0);
            bytes.drain(|mut bytes| {
                while !bytes.is_empty() {
                    let room = usize_from(PART) - part.len();
                    let (now, rest) = bytes.split_at(room.min(bytes.len()));
                    part.extend_from_slice(now);
                    bytes = rest;
                    let last = at + u64_from(part.len()) == len;
                    if last || u64_from(part.len()) == PART {
                        let first = at == 0;
                        at += u64_from(part.len());
                        let bytes = std::mem::take(&mut part);
                        let weight = bytes.len() * 2;
                        let room = Room::NONE;
                        let role = Role::Body { first, last, room };
                        jobs.send(Part { bytes, role }, weight)?;
                    }
                }
                Ok(())
            })
        },
        |encoded| Ok(store.add(encoded)?),
    )?;
    let body = store.last_body();
    Ok(Some(PackedInode { len, body }))
}
