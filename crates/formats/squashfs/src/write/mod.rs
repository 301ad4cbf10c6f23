//! Makes SquashFS images.
//!
//! File contents come first, read and encoded in parallel; then inodes and listings, from the
//! bottom of the tree up; then the tables. The superblock is written last, into the space left for
//! it. The image depends only on the tree and the options, not on the number of threads.

mod compressor;
mod data;
mod dir;
mod fetch;
mod inode;
mod metadata;
mod nodes;
mod options;
mod pack;
mod plan;
mod tables;
mod xattr;

use std::sync::Arc;

use forerun_build::{BuildError, ImageOutput, ImageWriter, KeptProperties, Tree};
use forerun_io::Observer;
use zerocopy::IntoBytes;

pub use options::{Compress, Fragments, SquashfsOptions};

use self::data::Data;
use self::metadata::MetadataWriter;
use self::nodes::Nodes;
use self::plan::Plan;
use self::tables::write_table;
use crate::ondisk::{MAGIC, METADATA_STORED, NONE_64, Superblock, VERSION, flags};

const PADDING: u64 = 4096;

/// Fractions of seconds are lost without being reported.
pub const KEPT: KeptProperties = KeptProperties {
    xattrs: xattr::keeps,
    time: |time| u32::try_from(time.seconds).is_ok(),
    ..KeptProperties::ALL
};

/// Writes `tree` as a SquashFS 4.0 image, and returns its length with the padding.
///
/// Times are stored in whole seconds from 1970 to 2106; times outside become the nearest one
/// inside. The format stores extended attributes of the namespaces `user`, `trusted` and
/// `security`; others are left out ([`KEPT`]). Files with POSIX ACLs get the mode that they have
/// without them.
///
/// # Errors
/// [`BuildError::Format`] for options out of their ranges and, before anything is written, for
/// names over 255 bytes, links over 4095 bytes and device numbers over 12 and 20 bits; while
/// writing, for over 65535 owners or more metadata than the format can address.
/// [`BuildError::Content`] if a file cannot be read or has changed since it was scanned,
/// [`BuildError::Output`], [`BuildError::Thread`], and [`BuildError::Memory`] before anything is
/// written.
pub fn write(
    tree: &Tree,
    options: &SquashfsOptions,
    out: &mut dyn ImageOutput,
    observer: &Arc<Observer>,
) -> Result<u64, BuildError> {
    options.validate()?;
    let bounds = options.bounds(tree)?;
    let plan = Plan::new(tree, options)?;
    nodes::check(tree, &plan)?;
    let (codec, codec_options) = compressor::compressor(&options.encoding, options.block_size);
    let mut out = ImageWriter::new(out, observer);
    out.write(&[0; size_of::<Superblock>()])?;
    if let Some(bytes) = &codec_options {
        let len = u16::try_from(bytes.len()).unwrap_or(0);
        out.write(&(len | METADATA_STORED).to_le_bytes())?;
        out.write(bytes)?;
    }
    let data = data::write_data(&plan, options, bounds, &mut out)?;
    let mut superblock = Superblock {
        s_magic: MAGIC.into(),
        inodes: plan.inodes.into(),
        mkfs_time: options
            .mkfs_time
            .unwrap_or_else(|| latest(tree, &plan))
            .into(),
        block_size: options.block_size.into(),
        fragments: u32::try_from(data.fragments.len()).unwrap_or(0).into(),
        compression: codec.into(),
        block_log: u16::try_from(options.block_size.ilog2())
            .unwrap_or(0)
            .into(),
        flags: superblock_flags(options, codec_options.is_some()).into(),
        no_ids: 0.into(),
        s_major: VERSION.0.into(),
        s_minor: VERSION.1.into(),
        root_inode: 0.into(),
        bytes_used: 0.into(),
        id_table_start: NONE_64.into(),
        xattr_id_table_start: NONE_64.into(),
        inode_table_start: NONE_64.into(),
        directory_table_start: NONE_64.into(),
        fragment_table_start: NONE_64.into(),
        lookup_table_start: NONE_64.into(),
    };
    let nodes = Nodes::new(tree, &plan, &data, options)?;
    write_metadata(nodes, &data, options, &mut superblock, &mut out)?;
    superblock.bytes_used = out.position().into();
    if options.pad {
        out.zeros_to(out.position().next_multiple_of(PADDING))?;
    }
    let mut image = out.finish()?;
    image.patch(0, superblock.as_bytes())?;
    image.end()
}

/// Writes everything after the data. Readers rely on this order, and on tables without gaps between
/// them.
fn write_metadata(
    mut nodes: Nodes<'_>,
    data: &Data,
    options: &SquashfsOptions,
    superblock: &mut Superblock,
    out: &mut ImageWriter<'_>,
) -> Result<(), BuildError> {
    let compress = options.compress;
    let table = |compress| MetadataWriter::new(&options.encoding, compress);
    superblock.inode_table_start = out.position().into();
    superblock.root_inode = nodes.write(out)?.reference().into();
    superblock.directory_table_start = out.position().into();
    nodes.listings.finish();
    out.write(&nodes.listings.take())?;
    let fragments = table(compress.fragments)?;
    superblock.fragment_table_start =
        write_table(fragments, data.fragments.as_bytes(), out)?.into();
    if options.exportable {
        let export = nodes.export_table();
        superblock.lookup_table_start = write_table(table(compress.inodes)?, &export, out)?.into();
    }
    superblock.no_ids = nodes.ids.len().into();
    superblock.id_table_start = write_table(table(compress.ids)?, &nodes.ids.bytes(), out)?.into();
    if let Some(start) = nodes.xattrs.finish(table(compress.xattrs)?, out)? {
        superblock.xattr_id_table_start = start.into();
    }
    Ok(())
}

fn superblock_flags(options: &SquashfsOptions, codec_options: bool) -> u16 {
    let compress = options.compress;
    let bits = [
        (!compress.inodes, flags::UNCOMPRESSED_INODES),
        (!compress.data, flags::UNCOMPRESSED_DATA),
        (!compress.fragments, flags::UNCOMPRESSED_FRAGMENTS),
        (!compress.ids, flags::UNCOMPRESSED_IDS),
        (!compress.xattrs, flags::UNCOMPRESSED_XATTRS),
        (options.fragments == Fragments::No, flags::NO_FRAGMENTS),
        (
            options.fragments == Fragments::Always,
            flags::ALWAYS_FRAGMENTS,
        ),
        (options.duplicates, flags::DUPLICATES),
        (options.exportable, flags::EXPORTABLE),
        (!options.xattrs, flags::NO_XATTRS),
        (codec_options, flags::COMPRESSOR_OPTIONS),
    ];
    let set = bits.into_iter().filter(|(set, _)| *set);
    set.fold(0, |all, (_, bit)| all | bit)
}

fn latest(tree: &Tree, plan: &Plan<'_>) -> u32 {
    let times = plan.walked.nodes.iter().map(|node| tree.node(node).mtime);
    times.map(inode::seconds).max().unwrap_or(0)
}

fn cannot(reason: String) -> BuildError {
    BuildError::Format {
        format: "squashfs",
        reason,
    }
}
