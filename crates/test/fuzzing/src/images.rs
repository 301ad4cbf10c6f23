//! Opens and reads an image as a user does.

use std::sync::Arc;

use forerun::vfs::{FileType, exercise};
use forerun::{EngineOptions, Image, MemorySource, OpenOptions};

/// Most bytes read of a file, because holes can be as long as an inode says.
const MOST: u64 = 1 << 20;

/// Opens `bytes` as an image of `format`, walks it and reads the start of every file through the
/// engine.
///
/// # Panics
/// If a read returns fewer or more bytes than the file has.
pub fn read_all(format: &str, bytes: &[u8]) {
    let options = OpenOptions {
        format: Some(format.to_string()),
        engine: EngineOptions {
            threads: 1,
            cache: 1 << 20,
            ..EngineOptions::default()
        },
        limits: exercise::limits(),
        ..OpenOptions::default()
    };
    let Ok(image) = Image::from_source(Arc::new(MemorySource::new(bytes)), &options) else {
        return;
    };
    let reader = image.reader();
    let mut total = 0;
    for entry in reader.walk(reader.fs().root()).flatten() {
        let Ok(metadata) = entry.metadata else {
            continue;
        };
        if metadata.kind != FileType::Regular || total > options.limits.total_bytes {
            continue;
        }
        let wanted = metadata.size.min(MOST);
        total += wanted;
        let Ok(len) = usize::try_from(wanted) else {
            continue;
        };
        // Blocks may fail to decode, but a read that succeeds has the requested length.
        if let Ok(data) = reader.read(entry.node, 0, len) {
            assert_eq!(data.len(), len, "node {}", entry.node);
        }
    }
}
