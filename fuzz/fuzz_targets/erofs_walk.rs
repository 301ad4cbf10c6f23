//! Any bytes as an image: first all that the driver can do with it, then the way of a user - open,
//! walk, read every file through the engine.
#![no_main]

use std::sync::Arc;

use forerun::{EngineOptions, Image, MemorySource, OpenOptions, vfs::FileType};
use forerun_erofs::fuzzing;
use libfuzzer_sys::fuzz_target;

/// Bytes read of a file at the most: holes can be as long as an inode says.
const MOST: u64 = 1 << 20;

fuzz_target!(|bytes: &[u8]| {
    let _errors = fuzzing::walk(bytes);
    read_all(bytes);
});

fn read_all(bytes: &[u8]) {
    let options = OpenOptions {
        format: Some("erofs".to_string()),
        engine: EngineOptions {
            threads: 1,
            cache: 1 << 20,
            ..EngineOptions::default()
        },
        limits: fuzzing::limits(),
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
        // Blocks may fail to decode; what is read has the length asked for.
        if let Ok(data) = reader.read(entry.node, 0, len) {
            assert_eq!(data.len(), len, "node {}", entry.node);
        }
    }
}
