//! Texts for the on-disk fields, for `dump`.

use forerun_vfs::FileType;

use crate::directory::lossy;
use crate::inode::Inode;
use crate::ondisk::EXT_BLOCK_POINTERS;
use crate::superblock::Superblock;

type Fields = Vec<(&'static str, String)>;

/// Returns the facts of an image for `info`.
pub fn details(superblock: &Superblock) -> Fields {
    let mut details = vec![
        ("byte order", superblock.order.name().to_string()),
        ("superblock", format!("{:#x}", superblock.offset)),
        ("flags", flags(superblock)),
    ];
    if superblock.is_version_2() {
        details.extend([
            ("edition", superblock.edition.to_string()),
            ("blocks", superblock.blocks.to_string()),
            ("files", superblock.files.to_string()),
            ("checksum", format!("{:#010x}", superblock.crc)),
        ]);
    }
    details
}

/// Returns the fields of the superblock in the image's order.
pub fn superblock(superblock: &Superblock) -> Fields {
    let signature = if superblock.has_signature() {
        "right".to_string()
    } else {
        format!("{:02x?}", superblock.signature)
    };
    vec![
        ("offset", format!("{:#x}", superblock.offset)),
        ("byte_order", superblock.order.name().to_string()),
        ("size", superblock.size.to_string()),
        ("flags", flags(superblock)),
        ("future", format!("{:#x}", superblock.future)),
        ("signature", signature),
        ("crc", format!("{:#010x}", superblock.crc)),
        ("edition", superblock.edition.to_string()),
        ("blocks", superblock.blocks.to_string()),
        ("files", superblock.files.to_string()),
        ("name", lossy(&superblock.name)),
        ("root", format!("{:#x}", superblock.root_node().0)),
    ]
}

fn flags(superblock: &Superblock) -> String {
    let names = superblock.flag_names();
    let separator = if names.is_empty() { "" } else { " " };
    format!("{:#x}{separator}{names}", superblock.flags)
}

/// Returns the fields of the inode at `at` in the image's order, and the offsets they contain.
pub fn inode(superblock: &Superblock, at: u64, inode: &Inode) -> Fields {
    let device = match inode.kind {
        FileType::BlockDevice | FileType::CharDevice => {
            let device = inode.device();
            format!(" (device {}:{})", device.major, device.minor)
        }
        _ => String::new(),
    };
    let leads = match inode.kind {
        _ if !inode.has_data() => "",
        FileType::Directory => " (first entry)",
        _ if superblock.has(EXT_BLOCK_POINTERS) => " (block pointers with flags)",
        _ => " (block pointers)",
    };
    let mut fields = vec![
        ("inode", format!("{at:#x}")),
        ("type", inode.kind.name().to_string()),
        ("mode", format!("{:#o}", inode.mode)),
        ("uid", inode.uid.to_string()),
        ("size", format!("{}{device}", inode.size)),
        ("gid", inode.gid.to_string()),
        ("namelen", inode.name_len.to_string()),
        ("offset", format!("{:#x}{leads}", inode.offset)),
    ];
    if matches!(inode.kind, FileType::Regular | FileType::Symlink) {
        fields.push(("blocks", inode.blocks().to_string()));
    }
    fields
}
