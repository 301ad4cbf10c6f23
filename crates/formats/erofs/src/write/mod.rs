//! Makes EROFS images.
//!
//! The superblock comes first, then inodes and directories in walk order without gaps, then data,
//! so that a walk reads one part of the image sequentially. If the lengths of inodes follow from
//! the tree, space is left for them and data is written at once. Compressed data waits in a
//! temporary file until the lengths of the inodes are known. The image depends only on the tree and
//! the options, not on the number of threads.

mod data;
mod dir;
mod encode;
mod fetch;
mod fragments;
mod holes;
mod index;
mod inode;
mod nodes;
mod options;
mod pack;
mod patches;
mod place;
mod plan;
mod referenced;
mod shape;
mod sink;
mod spool;
mod store;
mod stored;
mod superblock;
mod xattr;

use std::sync::Arc;

use forerun_build::{BuildError, ImageOutput, ImageWriter, KeptProperties, ParallelBounds, Tree};
use forerun_io::{Observer, u64_from, usize_from};
use forerun_vfs::Timestamp;

pub use options::{Compression, DeviceWithData, ErofsOptions, Fragments};

use self::data::{Data, write_data};
use self::index::Format;
use self::nodes::{Nodes, Parts};
use self::patches::Patches;
use self::plan::Plan;
use self::shape::{Shapes, most_frequent_time};
use self::sink::Sink;
use self::spool::Spool;
use self::superblock::{Facts, ImageHead};
use self::xattr::Xattrs;

pub const KEPT: KeptProperties = KeptProperties {
    xattrs: xattr::keeps,
    ..KeptProperties::ALL
};

/// Writes `tree` as an EROFS image, and returns its length.
///
/// The format stores extended attributes of the namespaces `user`, `trusted` and `security`, and
/// POSIX ACLs. Others are left out.
///
/// # Errors
/// [`BuildError::Format`] for options out of their ranges and, before anything is written, for
/// names over 255 bytes, links over 4095 bytes, device numbers over 12 and 20 bits, and too much of
/// extended attributes; while writing, for more blocks than the format can address.
/// [`BuildError::Content`] if a file cannot be read or has changed since it was scanned,
/// [`BuildError::Output`], [`BuildError::Host`] if temporary files fail, and
/// [`BuildError::Thread`]; [`BuildError::Memory`] before anything is written.
pub fn write(
    tree: &Tree,
    options: &ErofsOptions,
    out: &mut dyn ImageOutput,
    observer: &Arc<Observer>,
) -> Result<u64, BuildError> {
    options.validate()?;
    let bounds = options.bounds(tree)?;
    let plan = Plan::new(tree, options)?;
    let head = ImageHead::new(options);
    let xattrs = if options.xattrs {
        Xattrs::new(
            tree,
            &plan,
            &options.xattr_prefixes,
            options.share_xattrs_above,
            head.first_shared(),
        )?
    } else {
        Xattrs::default()
    };
    let epoch = match options.mkfs_time {
        Some(seconds) => Timestamp {
            seconds,
            nanoseconds: 0,
        },
        None => most_frequent_time(tree, &plan),
    };
    let shapes = Shapes::new(tree, &plan, &xattrs, epoch, options.block());
    let parts = Parts {
        tree,
        plan: &plan,
        xattrs: &xattrs,
        shapes: &shapes,
        options,
        format: format(options),
        epoch,
    };
    let inodes_at = head.inodes_at(&xattrs.shared);
    let image = PlannedImage {
        parts,
        head,
        inodes_at,
        bounds,
    };
    let out = ImageWriter::new(out, observer);
    match options.compression {
        Some(_) => image.write_inodes_first(out),
        None => image.write_data_first(out),
    }
}

fn format(options: &ErofsOptions) -> Format {
    let with = options.compression.as_ref();
    let block_bits = options.block_bits();
    Format {
        block_bits,
        big: with.is_some_and(|with| with.cluster_size > options.block_size),
        full: with.is_some_and(|with| with.full_indexes) || !index::can_compact(block_bits),
        algorithm: with.map_or(0, superblock::algorithm),
    }
}

/// The parts of an image that are known before any contents are read.
struct PlannedImage<'a> {
    parts: Parts<'a>,
    head: ImageHead,
    inodes_at: u64,
    bounds: ParallelBounds,
}

impl PlannedImage<'_> {
    fn write_data(&self, sink: &mut Sink<'_, '_>) -> Result<Data, BuildError> {
        let Parts {
            plan,
            shapes,
            options,
            ..
        } = self.parts;
        write_data(plan, shapes, options, self.bounds, sink)
    }

    /// Writes an image whose inode lengths are known: data at its final offsets, then the inodes
    /// into the space before it.
    fn write_data_first(&self, mut out: ImageWriter<'_>) -> Result<u64, BuildError> {
        let options = self.parts.options;
        let nodes = Nodes::place(self.parts, None, self.inodes_at);
        out.zeros_to(nodes.end)?;
        let mut sink = match &options.blob {
            Some(file) => Sink::Device { file, len: 0 },
            None => Sink::Image(&mut out),
        };
        let data = self.write_data(&mut sink)?;
        let mut patches = Patches::of(out.finish()?);
        let mut seen = Seen::default();
        nodes.write(&data, self.base(nodes.end)?, &mut |at, bytes| {
            seen.add(at, bytes);
            patches.patch(at, bytes)
        })?;
        self.write_head(&nodes, &data, seen, patches)
    }

    /// Writes an image whose inode lengths depend on the compressed data: the data waits in a
    /// temporary file until the inodes are written.
    fn write_inodes_first(&self, mut out: ImageWriter<'_>) -> Result<u64, BuildError> {
        let mut spool = Spool::default();
        let mut sink = Sink::Spool(&mut spool);
        let data = self.write_data(&mut sink)?;
        let nodes = Nodes::place(self.parts, Some(&data), self.inodes_at);
        let mut seen = Seen::default();
        nodes.write(&data, self.base(nodes.end)?, &mut |at, bytes| {
            seen.add(at, bytes);
            out.zeros_to(at)?;
            out.write(bytes)
        })?;
        out.zeros_to(nodes.end)?;
        spool.drain(|bytes| out.write(bytes))?;
        self.write_head(&nodes, &data, seen, Patches::of(out.finish()?))
    }

    /// Returns the first block of data.
    fn base(&self, end: u64) -> Result<u32, BuildError> {
        if self.parts.options.has_devices() {
            return Ok(0);
        }
        let blocks = end / u64::from(self.parts.options.block_size);
        u32::try_from(blocks).map_err(|_| cannot(format!("{blocks} blocks of inodes")))
    }

    fn write_head(
        &self,
        nodes: &Nodes<'_>,
        data: &Data,
        mut seen: Seen,
        mut patches: Patches<'_>,
    ) -> Result<u64, BuildError> {
        let options = self.parts.options;
        let block = u64::from(options.block_size);
        let on_device = options.has_devices();
        let mut device_lens: Vec<_> = options.devices.iter().map(|device| device.len).collect();
        device_lens.extend(options.blob.as_ref().map(|_| data.blocks * block));
        let mut facts = Facts {
            root: nodes.nid(Tree::ROOT),
            inodes: u64_from(self.parts.plan.inodes.len()),
            epoch: self.parts.epoch,
            blocks: nodes.end / block + if on_device { 0 } else { data.blocks },
            inodes_at: self.inodes_at,
            uuid: options.uuid.unwrap_or_default(),
            shared_extents: data.shared,
            packed: nodes.packed_nid(),
            device_lens,
            chunks: options.chunk_size.is_some() || !self.parts.plan.chunked.is_empty(),
        };
        if options.uuid.is_none() {
            seen.hasher.update(&self.head.encode(options, &facts)?);
            facts.uuid = uuid(&seen.hasher);
        }
        let mut head = self.head.encode(options, &facts)?;
        head.extend_from_slice(&self.parts.xattrs.shared);
        let sum = superblock::checksum(&seen.first_block(&head, block));
        head.splice(superblock::CHECKSUM, sum.to_le_bytes());
        patches.patch(superblock::START, &head)?;
        patches.end()
    }
}

/// Collects from the written metadata what the UUID and the checksum are computed from.
#[derive(Default)]
struct Seen {
    hasher: blake3::Hasher,
    /// The bytes from the superblock to the end of the longest block.
    start: Vec<u8>,
}

impl Seen {
    fn add(&mut self, at: u64, bytes: &[u8]) {
        self.hasher.update(bytes);
        let offset = usize_from(at - superblock::START);
        if at < 1 << 17 {
            self.start.resize(self.start.len().max(offset), 0);
            self.start.truncate(offset);
            self.start.extend_from_slice(bytes);
        }
    }

    /// Returns the bytes that the superblock's checksum covers: from the superblock to the end of
    /// its block.
    fn first_block(mut self, head: &[u8], block: u64) -> Vec<u8> {
        let len = if block > superblock::START {
            block - superblock::START
        } else {
            block
        };
        let len = usize_from(len);
        self.start
            .resize(self.start.len().max(len).max(head.len()), 0);
        if let Some(start) = self.start.get_mut(..head.len()) {
            start.copy_from_slice(head);
        }
        self.start.truncate(len);
        self.start
    }
}

/// Derives a version 8 UUID from the metadata.
fn uuid(hasher: &blake3::Hasher) -> [u8; 16] {
    let mut uuid = [0; 16];
    hasher.finalize_xof().fill(&mut uuid);
    let [.., version, _, variant, _, _, _, _, _, _, _] = &mut uuid;
    *version = *version & 0x0F | 0x80;
    *variant = *variant & 0x3F | 0x80;
    uuid
}

fn cannot(reason: String) -> BuildError {
    BuildError::Format {
        format: "erofs",
        reason,
    }
}
