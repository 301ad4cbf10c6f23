//! On-disk fields under the format's own names, for `dump` and `info`.

use forerun_vfs::{ByteOrder, FileType, NodeId, Result};

use crate::image::Image;
use crate::inode::{Inode, InodeBody};
use crate::ondisk::{BLOCK_STORED, flags};
use crate::options;
use crate::superblock::{Legacy, compressor};

type Fields = Vec<(&'static str, String)>;

/// Returns the SquashFS-specific fields of `info`.
pub fn details(image: &Image) -> Fields {
    let superblock = &image.superblock;
    let version = (
        "version",
        superblock
            .legacy
            .as_ref()
            .map_or("4.0".into(), Legacy::version_text),
    );
    let mut fields = vec![version];
    if let Some(legacy) = &superblock.legacy {
        fields.push(("byte order", legacy.order.name().into()));
        fields.push(("magic", legacy.magic.escape_ascii().to_string()));
    } else if superblock.order == ByteOrder::Big {
        fields.push(("byte order", superblock.order.name().into()));
        fields.push(("metadata headers", superblock.headers.name().into()));
    }
    fields.extend([
        ("compressor", compressor(superblock.codec).into()),
        ("flags", flag_names(superblock.flags)),
        ("fragments", superblock.fragments.to_string()),
        ("ids", superblock.ids.to_string()),
        (
            "xattr sets",
            image
                .xattrs
                .as_ref()
                .map_or(0, |table| table.count())
                .to_string(),
        ),
    ]);
    fields
}

pub fn superblock(image: &Image) -> Result<Fields> {
    let superblock = &image.superblock;
    let optional = |start: Option<u64>| start.map_or("none".into(), |start| format!("{start:#x}"));
    let mut fields = vec![
        ("inodes", superblock.inodes.to_string()),
        ("mkfs_time", superblock.mkfs_time.to_string()),
        ("block_size", superblock.block_size.to_string()),
        ("fragments", superblock.fragments.to_string()),
        ("compression", compressor(superblock.codec).into()),
        ("flags", flag_names(superblock.flags)),
        ("no_ids", superblock.ids.to_string()),
        ("root_inode", superblock.root.to_string()),
        ("bytes_used", superblock.bytes_used.to_string()),
        ("id_table_start", format!("{:#x}", superblock.id_table)),
        ("xattr_id_table_start", optional(superblock.xattr_table)),
        (
            "inode_table_start",
            format!("{:#x}", superblock.inode_table),
        ),
        (
            "directory_table_start",
            format!("{:#x}", superblock.directory_table),
        ),
        ("fragment_table_start", optional(superblock.fragment_table)),
        ("lookup_table_start", optional(superblock.export_table)),
    ];
    if superblock.flags & flags::COMPRESSOR_OPTIONS != 0 {
        let options = options::read(image)?;
        let text = options.map_or_else(|| "unknown".into(), |options| options.to_string());
        fields.push(("compressor_options", text));
    }
    Ok(fields)
}

/// Returns the fields of an inode and the block sizes of a file.
pub fn inode(image: &Image, node: NodeId) -> Result<Fields> {
    let inode = image.inode(node)?;
    let form = if inode.is_extended {
        "extended"
    } else {
        "basic"
    };
    let mut fields = vec![
        ("inode_type", format!("{form} {}", inode.file_type.name())),
        ("mode", format!("{:04o}", inode.mode)),
        ("uid", inode.uid_index.to_string()),
        ("guid", inode.gid_index.to_string()),
        ("mtime", inode.mtime.seconds.to_string()),
        ("inode_number", inode.number.to_string()),
        ("nlink", inode.nlink.to_string()),
    ];
    body(image, node, &inode, &mut fields)?;
    if let Some(index) = inode.xattrs {
        fields.push(("xattr", index.to_string()));
    }
    Ok(fields)
}

fn body(image: &Image, node: NodeId, inode: &Inode, fields: &mut Fields) -> Result<()> {
    match &inode.body {
        InodeBody::File(file) => {
            fields.push(("file_size", file.size.to_string()));
            fields.push(("start_block", format!("{:#x}", file.start)));
            if inode.is_extended {
                fields.push(("sparse", file.sparse.to_string()));
            }
            let fragment = file.fragment.map_or("none".into(), |fragment| {
                format!("{} at {}", fragment.index, fragment.offset)
            });
            fields.push(("fragment", fragment));
            let mut cursor = image.inodes_at(file.sizes, node)?;
            for _ in 0..file.blocks {
                let size = image.block_word(&mut cursor, node, file)?;
                fields.push(("block", block(size)));
            }
        }
        InodeBody::Dir(dir) => {
            fields.push(("file_size", dir.size.to_string()));
            fields.push(("start_block", dir.start.to_string()));
            fields.push(("parent_inode", dir.parent.to_string()));
            fields.push(("i_count", dir.indexes.to_string()));
        }
        InodeBody::Symlink { len, .. } => fields.push(("symlink_size", len.to_string())),
        InodeBody::Device(device) if inode.file_type != FileType::Regular => {
            fields.push(("rdev", format!("{}:{}", device.major, device.minor)));
        }
        InodeBody::Device(_) | InodeBody::Ipc => {}
    }
    Ok(())
}

fn block(size: u32) -> String {
    match (size & BLOCK_STORED != 0, size & !BLOCK_STORED) {
        (_, 0) => "sparse".into(),
        (true, len) => format!("{len} as it is"),
        (false, len) => format!("{len} compressed"),
    }
}

fn flag_names(word: u16) -> String {
    let names: Vec<&str> = [
        (flags::UNCOMPRESSED_INODES, "uncompressed-inodes"),
        (flags::UNCOMPRESSED_DATA, "uncompressed-data"),
        (flags::CHECK_DATA, "check-data"),
        (flags::UNCOMPRESSED_FRAGMENTS, "uncompressed-fragments"),
        (flags::NO_FRAGMENTS, "no-fragments"),
        (flags::ALWAYS_FRAGMENTS, "always-fragments"),
        (flags::DUPLICATES, "duplicates"),
        (flags::EXPORTABLE, "exportable"),
        (flags::UNCOMPRESSED_XATTRS, "uncompressed-xattrs"),
        (flags::NO_XATTRS, "no-xattrs"),
        (flags::COMPRESSOR_OPTIONS, "compressor-options"),
        (flags::UNCOMPRESSED_IDS, "uncompressed-ids"),
    ]
    .into_iter()
    .filter_map(|(bit, name)| (word & bit != 0).then_some(name))
    .collect();
    if names.is_empty() {
        "none".into()
    } else {
        names.join(" ")
    }
}
