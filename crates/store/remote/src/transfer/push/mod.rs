//! Stores an image in a registry: its chunk table, its parts, and the manifest that names them.
//!
//! The image is read once, and each part is hashed as it is read. A task sends the part, if the
//! registry lacks it, while the next parts are read. The number of parts in flight bounds the
//! memory. Parts start at multiples of one length, so a part that did not change between versions
//! has the same digest and is not sent again. The manifest is sent last; until then no client sees
//! the image. The same image and options give the same manifest.

mod document;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use forerun_cache::{DEFAULT_CHUNK, Digest, Geometry, TableBuilder};
use forerun_io::{ReadAt, u64_from, usize_from};
use forerun_sys::memory_limit::{MemoryLimit, Mib};
use tokio::task::JoinSet;

use crate::address::image_name::ImageName;
use crate::oci::artifact::{ImageConfig, MAX_PARTS};
use crate::oci::media;
use crate::progress::Progress;
use crate::registry::{Registry, Repository};
use crate::{RemoteError, Result, runtime};
use document::{descriptor, manifest};

/// Default length of a part.
const PART: u64 = 4 << 20;
/// Longest part. A part is in memory while it is sent.
const MAX_PART: u64 = 1 << 30;
/// Most bytes of parts in flight, unless less memory is available.
const IN_FLIGHT: u64 = 128 << 20;

#[derive(Clone, Debug)]
pub struct PushOptions {
    /// Length of a part in bytes. It is rounded up to whole chunks, and doubled until there are at
    /// most 4,096 parts.
    pub part_len: u64,
    /// Bytes per digest of the table; a power of two.
    pub chunk_size: u32,
    /// Name of the image's format, for people.
    pub format: Option<String>,
    pub annotations: BTreeMap<String, String>,
    pub parallel: usize,
}

impl Default for PushOptions {
    fn default() -> Self {
        Self {
            part_len: PART,
            chunk_size: DEFAULT_CHUNK,
            format: None,
            annotations: BTreeMap::new(),
            parallel: 8,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pushed {
    /// The name of the image with the digest of its manifest.
    pub name: ImageName,
    /// fs-verity digest of the image.
    pub root: Digest,
    pub len: u64,
    /// Length of each part except the last.
    pub part_len: u64,
    pub parts: u64,
    /// Number of parts that were sent. The registry had the others.
    pub uploaded: u64,
    /// Bytes of the sent parts, and of the table if it was sent.
    pub uploaded_bytes: u64,
}

/// Stores `image` as `name`, and reports progress after every part. Blocks, so it must not be
/// called from a task of the runtime.
pub fn push(
    registry: &Arc<Registry>,
    image: &dyn ReadAt,
    name: &ImageName,
    options: &PushOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<Pushed> {
    let plan = Plan::new(image.len(), name, options)?;
    let repository = Repository::new(registry, name)?;
    let mut sending = Sending {
        name,
        parallel: plan.parallel,
        repository: repository.clone(),
        tasks: JoinSet::new(),
        progress: Progress {
            total: plan.len,
            ..Progress::default()
        },
        uploaded: 0,
        report: progress,
    };
    let (table, parts) = sending.parts(image, &plan)?;
    let (root, table) = (table.root(), Bytes::from(table.into_bytes()));
    let config = Bytes::from(document::config(&ImageConfig {
        image_length: plan.len,
        chunk_size: options.chunk_size,
        verity_root: root.to_string(),
        part_length: plan.part_len,
        format: options.format.clone(),
    }));
    let mut layers = vec![descriptor(media::TABLE, Digest::of(&table), &table)];
    layers.extend(parts);
    let config_entry = descriptor(media::CONFIG, Digest::of(&config), &config);
    let manifest = Bytes::from(manifest(&config_entry, &layers, &options.annotations));
    let tag = name.reference();
    let (digest, table_bytes) = runtime::wait_for(async {
        let sent = repository.put_blob(Digest::of(&table), &table).await?;
        repository.put_blob(Digest::of(&config), &config).await?;
        let digest = repository.put_manifest(&tag, &manifest).await?;
        Ok((digest, if sent { u64_from(table.len()) } else { 0 }))
    })?;
    Ok(Pushed {
        name: name.with_digest(digest),
        root,
        len: plan.len,
        part_len: plan.part_len,
        parts: plan.len.div_ceil(plan.part_len),
        uploaded: sending.uploaded,
        uploaded_bytes: sending.progress.transferred + table_bytes,
    })
}

struct Plan {
    len: u64,
    part_len: u64,
    chunk_size: u32,
    parallel: usize,
}

impl Plan {
    fn new(len: u64, name: &ImageName, options: &PushOptions) -> Result<Self> {
        let refused = |reason: String| RemoteError::Refused {
            place: name.to_string(),
            reason,
        };
        if name.digest.is_some() {
            return Err(refused(
                "an image is stored under a tag, not a digest".to_string(),
            ));
        }
        if len == 0 {
            return Err(refused(
                "there is nothing to store in an empty image".to_string(),
            ));
        }
        Geometry::new(len, options.chunk_size).map_err(|error| refused(error.to_string()))?;
        let part_len = part_len(len, options)
            .ok_or_else(|| refused(format!("{len} bytes make parts longer than {MAX_PART}")))?;
        let bound = in_flight(part_len, MemoryLimit::of_process());
        let bound = bound.ok_or_else(|| {
            let limit = MemoryLimit::of_process();
            refused(format!(
                "a part of {} is more than four fifths of {limit}",
                Mib(part_len)
            ))
        })?;
        Ok(Self {
            len,
            part_len,
            chunk_size: options.chunk_size,
            parallel: options.parallel.clamp(1, usize_from(bound)),
        })
    }
}

/// Returns how many parts may be in flight, or `None` if not even one fits into the available
/// memory.
fn in_flight(part_len: u64, limit: &MemoryLimit) -> Option<u64> {
    let most = limit.usable() / part_len;
    let bound = (limit.eighth(IN_FLIGHT) / part_len).max(2).min(most);
    (bound > 0).then_some(bound)
}

/// Returns the length of parts: a multiple of the chunk size that gives at most the allowed number
/// of parts.
fn part_len(len: u64, options: &PushOptions) -> Option<u64> {
    let mut part_len = options
        .part_len
        .max(1)
        .checked_next_multiple_of(u64::from(options.chunk_size))?;
    while len.div_ceil(part_len) > MAX_PARTS {
        part_len = part_len.checked_mul(2)?;
    }
    (part_len <= MAX_PART).then_some(part_len)
}

struct Sending<'a> {
    name: &'a ImageName,
    repository: Repository,
    parallel: usize,
    tasks: JoinSet<Result<(u64, bool)>>,
    progress: Progress,
    uploaded: u64,
    report: &'a mut dyn FnMut(Progress),
}

impl Sending<'_> {
    fn parts(
        &mut self,
        image: &dyn ReadAt,
        plan: &Plan,
    ) -> Result<(forerun_cache::ChunkTable, Vec<document::BlobDescriptor>)> {
        let refused = |reason: String| RemoteError::Refused {
            place: self.name.to_string(),
            reason,
        };
        let mut table =
            TableBuilder::new(plan.chunk_size).map_err(|error| refused(error.to_string()))?;
        let mut parts = Vec::new();
        let mut seen = HashSet::new();
        let mut offset = 0;
        while offset < plan.len {
            let len = plan.part_len.min(plan.len - offset);
            let mut bytes = vec![0; usize_from(len)];
            image
                .read_exact_at(offset, &mut bytes)
                .map_err(|error| refused(format!("the image cannot be read: {error}")))?;
            table
                .push(&bytes)
                .map_err(|error| refused(error.to_string()))?;
            let digest = Digest::of(&bytes);
            parts.push(descriptor(media::PART, digest, &bytes));
            if seen.insert(digest) {
                self.send(digest, Bytes::from(bytes))?
            } else {
                self.done(len, false)
            }
            offset += len;
        }
        while self.wait_for_one()? {}
        let table = table.finish().map_err(|error| refused(error.to_string()))?;
        Ok((table, parts))
    }

    /// Sends a part, after waiting until fewer than `parallel` are in flight.
    fn send(&mut self, digest: Digest, bytes: Bytes) -> Result<()> {
        while self.tasks.len() >= self.parallel {
            self.wait_for_one()?;
        }
        let repository = self.repository.clone();
        let task = async move {
            let sent = repository.put_blob(digest, &bytes).await?;
            Ok((u64_from(bytes.len()), sent))
        };
        self.tasks.spawn_on(task, runtime::handle()?);
        Ok(())
    }

    /// Waits until a part was sent. Returns false if none is in flight. The first error cancels the
    /// others.
    fn wait_for_one(&mut self) -> Result<bool> {
        let tasks = &mut self.tasks;
        let next = runtime::wait_for(async { Ok(tasks.join_next().await) })?;
        let Some(outcome) = next else {
            return Ok(false);
        };
        let outcome = outcome.unwrap_or_else(|_| {
            Err(RemoteError::Refused {
                place: self.name.to_string(),
                reason: "sending a part broke off".to_string(),
            })
        });
        let (len, sent) = outcome?;
        self.done(len, sent);
        Ok(true)
    }

    fn done(&mut self, len: u64, sent: bool) {
        self.progress.done += len;
        if sent {
            self.uploaded += 1;
            self.progress.transferred += len;
        }
        (self.report)(self.progress);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_in_flight_follow_the_memory() {
        const MIB: u64 = 1 << 20;
        for (memory, part, expected) in [
            (24 << 10, 4, Some(32)),
            (24 << 10, 1024, Some(2)),
            (128, 4, Some(4)),
            (64, 4, Some(2)),
            (64, 40, Some(1)),
            (64, 64, None),
        ] {
            let limit = MemoryLimit::of_machine(memory * MIB);
            assert_eq!(in_flight(part * MIB, &limit), expected, "{memory} {part}");
        }
    }

    #[test]
    fn parts_are_whole_chunks_and_not_too_many() {
        for (len, wanted, chunk, expected) in [
            (1, PART, 65_536, PART),
            (16 << 30, PART, 65_536, PART),
            ((16 << 30) + 1, PART, 65_536, 2 * PART),
            (1 << 40, PART, 65_536, 256 << 20),
            (1 << 42, PART, 65_536, 1 << 30),
            (100, 1, 4096, 4096),
            (100, 4097, 4096, 8192),
            (100, 0, 1 << 20, 1 << 20),
        ] {
            let options = PushOptions {
                part_len: wanted,
                chunk_size: chunk,
                ..PushOptions::default()
            };
            assert_eq!(
                part_len(len, &options),
                Some(expected),
                "{len} {wanted} {chunk}"
            );
        }
        assert_eq!(part_len((1 << 42) + 1, &PushOptions::default()), None);
    }
}
