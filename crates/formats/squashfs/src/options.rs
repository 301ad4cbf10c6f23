//! The compressor options behind the superblock. Reading needs none of them, because streams hold
//! their own parameters. `dump` shows them.

use forerun_codec::Codec;
use forerun_vfs::Result;
use zerocopy::little_endian::{U16, U32};

use crate::cursor::{Cursor, Table};
use crate::image::Image;
use crate::reference::Reference;
use crate::superblock::HEAD;

/// Returns the options as text, as far as they are known.
pub fn describe(image: &Image) -> Result<String> {
    let table = Table {
        name: "compressor options",
        start: HEAD,
        end: image.superblock.inode_table,
    };
    let mut cursor = Cursor::new(&image.blocks, table, Reference::from_raw(0), None)?;
    let mut word = || cursor.read().map(U32::get);
    Ok(match image.superblock.codec {
        Codec::Zlib => {
            let level = word()?;
            let window: U16 = cursor.read()?;
            let strategies: U16 = cursor.read()?;
            format!("level {level} window {window} strategies {strategies:#x}")
        }
        Codec::Xz => format!("dictionary {} filters {:#x}", word()?, word()?),
        Codec::Lzo => format!("algorithm {} level {}", word()?, word()?),
        Codec::Lz4 => format!("version {} flags {:#x}", word()?, word()?),
        Codec::Zstd => format!("level {}", word()?),
        _ => "unknown".into(),
    })
}
