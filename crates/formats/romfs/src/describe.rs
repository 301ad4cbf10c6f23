//! Texts for the on-disk fields, for `dump`.

use forerun_vfs::FileType;

use crate::header::{Header, Kind};
use crate::superblock::Superblock;

type Fields = Vec<(&'static str, String)>;

/// Returns the fields of the superblock, in the image's order, and the offset of the root.
pub fn superblock(superblock: &Superblock) -> Fields {
    vec![
        ("full_size", superblock.full_size.to_string()),
        // An image with a wrong checksum does not open.
        ("checksum", format!("{:#010x} (right)", superblock.checksum)),
        ("volume_name", name(&superblock.volume_name)),
        ("root", format!("{:#x}", superblock.root)),
    ]
}

/// Returns the fields of a header, in the image's order, and the offset it contains.
pub fn header(header: &Header) -> Fields {
    let spec_info = match header.kind {
        Kind::HardLink { target } => format!(" (target {target:#x})"),
        Kind::Directory { first } => format!(" (first entry {first:#x})"),
        Kind::BlockDevice(device) | Kind::CharDevice(device) => {
            format!(" (device {}:{})", device.major, device.minor)
        }
        Kind::Regular | Kind::Symlink | Kind::Socket | Kind::Fifo => String::new(),
    };
    let checksum = match header.sum {
        0 => "right".to_string(),
        sum => format!("wrong, the words add up to {sum:#010x}"),
    };
    let kind = header.file_type().map_or("hard_link", FileType::name);
    vec![
        ("offset", format!("{:#x}", header.offset)),
        ("next", format!("{:#x}", header.next.unwrap_or(0))),
        ("type", kind.to_string()),
        ("executable", header.executable.to_string()),
        ("spec_info", format!("{:#x}{spec_info}", header.spec_info)),
        ("size", header.size.to_string()),
        (
            "checksum",
            format!("{:#010x} ({checksum})", header.checksum),
        ),
        ("name", name(&header.name)),
        ("data", format!("{:#x}", header.data)),
    ]
}

fn name(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
