//! On-disk fields under the format's own names, for `dump` and `info`.

use forerun_io::u64_from;
use forerun_vfs::{Extent, FileType, NodeId, Place, Result};

use crate::address::Space;
use crate::compressor;
use crate::image::{Chunks, Image, map};
use crate::inode::{DataLayout, Inode};

type DetailFields = Vec<(&'static str, String)>;

/// Upper bound on the extents listed for a compressed file.
const EXTENTS: usize = 10_000;

/// Returns the EROFS-specific fields of `info`.
pub fn details(image: &Image) -> DetailFields {
    let superblock = &image.superblock;
    let mut fields = vec![
        ("features", superblock.features()),
        ("compressors", superblock.compressors()),
        ("uuid", uuid(&superblock.uuid)),
    ];
    if superblock.devices > 0 {
        fields.push(("devices", superblock.devices.to_string()));
    }
    fields
}

/// Returns the fields of the superblock, and of the tables that it points to.
pub fn superblock(image: &Image) -> Result<DetailFields> {
    let superblock = &image.superblock;
    let hex = |value: u32| format!("{value:#x}");
    let optional = |nid: Option<u64>| nid.map_or("none".into(), |nid| nid.to_string());
    let mut fields = vec![
        ("checksum", format!("{:#010x}", superblock.checksum)),
        ("feature_compat", hex(superblock.feature_compat)),
        ("blkszbits", superblock.block_bits.to_string()),
        ("sb_extslots", superblock.extension_slots.to_string()),
        ("root_nid", superblock.root.to_string()),
        ("inos", superblock.inodes.to_string()),
        ("epoch", superblock.epoch.to_string()),
        ("fixed_nsec", superblock.nanoseconds.to_string()),
        ("blocks", superblock.blocks.to_string()),
        ("meta_blkaddr", superblock.meta_block.to_string()),
        ("xattr_blkaddr", superblock.xattr_block.to_string()),
        ("uuid", uuid(&superblock.uuid)),
        (
            "volume_name",
            String::from_utf8_lossy(&superblock.label).into_owned(),
        ),
        ("feature_incompat", hex(superblock.feature_incompat)),
        ("is_compressed", hex(u32::from(superblock.is_compressed))),
        ("xattr_prefix_start", superblock.prefix_start.to_string()),
        ("packed_nid", optional(superblock.packed)),
        ("metabox_nid", optional(superblock.metabox)),
    ];
    for device in image.devices.list() {
        let tag = String::from_utf8_lossy(&device.tag).into_owned();
        let (blocks, first) = (device.blocks, device.first);
        fields.push((
            "device",
            format!("{tag:?}, {blocks} blocks, uniaddr {first}"),
        ));
    }
    for prefix in &image.prefixes {
        fields.push(("xattr_prefix", prefix.text()));
    }
    for (name, value) in compressor::settings(image)? {
        fields.push(("compr_cfg", format!("{name}: {value}")));
    }
    Ok(fields)
}

/// Returns the fields of an inode and the locations of its data.
pub fn inode(image: &Image, node: NodeId) -> Result<DetailFields> {
    let inode = image.inode(node)?;
    let form = if inode.is_extended {
        "extended"
    } else {
        "compact"
    };
    let at = match inode.at.space {
        Space::Image => format!("{:#x}", inode.at.offset),
        Space::Metabox => format!("{:#x} of the metabox", inode.at.offset),
    };
    let mut fields = vec![
        ("offset", at),
        ("i_format", format!("{form} {}", inode.layout.name())),
        (
            "i_mode",
            format!("{} {:04o}", inode.file_type.name(), inode.mode),
        ),
        ("i_nlink", inode.nlink.to_string()),
        ("i_size", inode.size.to_string()),
        ("i_uid", inode.uid.to_string()),
        ("i_gid", inode.gid.to_string()),
        (
            "i_mtime",
            format!("{}.{:09}", inode.mtime.seconds, inode.mtime.nanoseconds),
        ),
        ("i_ino", inode.number.to_string()),
        ("xattr_isize", inode.xattr_len.to_string()),
    ];
    match inode.file_type {
        FileType::Regular | FileType::Directory | FileType::Symlink => {
            data(image, &inode, &mut fields)?;
        }
        FileType::BlockDevice | FileType::CharDevice => {
            let device = inode.device();
            fields.push(("rdev", format!("{}:{}", device.major, device.minor)));
        }
        FileType::Fifo | FileType::Socket => {}
    }
    Ok(fields)
}

fn data(image: &Image, inode: &Inode, fields: &mut DetailFields) -> Result<()> {
    match inode.layout {
        DataLayout::Plain | DataLayout::Inline => {
            let block = inode.start_block();
            fields.push((
                "startblk",
                block.map_or("none".into(), |block| block.to_string()),
            ));
        }
        DataLayout::Chunks => chunks(image, inode, fields)?,
        DataLayout::CompressedFull | DataLayout::CompressedCompact => {
            fields.push(("compressed_blocks", inode.word.to_string()));
            let mut left = EXTENTS;
            map::map(image, inode, 0..inode.size, &mut |extent| {
                fields.push(("extent", one(&extent)));
                left -= 1;
                match left {
                    0 => std::ops::ControlFlow::Break(()),
                    _ => std::ops::ControlFlow::Continue(()),
                }
            })?;
        }
    }
    Ok(())
}

fn chunks(image: &Image, inode: &Inode, fields: &mut DetailFields) -> Result<()> {
    let chunks = Chunks::of(image, inode)?;
    fields.push(("chunk_format", format!("{:#x}", inode.word)));
    let mut index = 0;
    while index < chunks.count && fields.len() < EXTENTS {
        let entries = chunks.read(image, inode, index, chunks.count)?;
        index += u64_from(entries.len()).max(1);
        for entry in entries {
            let block = match (entry.block, entry.device) {
                (None, _) => "none".into(),
                (Some(block), 0) => block.to_string(),
                (Some(block), device) => format!("{block} of device {device}"),
            };
            fields.push(("chunk", block));
        }
    }
    Ok(())
}

fn one(extent: &Extent) -> String {
    let (start, end) = (extent.logical.start, extent.logical.end);
    match &extent.place {
        Place::Zero => format!("{start}..{end} zeros"),
        Place::Stored { blob, offset } => format!("{start}..{end} at {}:{offset:#x}", blob.0),
        Place::Encoded { block, skip } => {
            let (blob, offset, len) = (block.blob.0, block.offset, block.len);
            let codec = block.codec.name();
            format!("{start}..{end} from byte {skip} of {len} bytes {codec} at {blob}:{offset:#x}")
        }
        Place::Inline(bytes) => format!("{start}..{end} inline, {} bytes", bytes.len()),
    }
}

fn uuid(bytes: &[u8; 16]) -> String {
    let mut out = String::new();
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            out.push('-');
        }
        out += &format!("{byte:02x}");
    }
    out
}
