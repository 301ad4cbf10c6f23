//! Any bytes as an image: first all that the driver can do with it, then the way of a user - open,
//! walk, read every file through the engine.
#![no_main]

use std::sync::Arc;

use forerun::{EngineOptions, Image, MemorySource, OpenOptions, vfs::FileType};
use forerun_romfs::fuzzing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _errors = fuzzing::walk(bytes);
    read_all(&fuzzing::with_checksum(bytes));
});

fn read_all(bytes: &[u8]) {
    let options = OpenOptions {
        format: Some("romfs".to_string()),
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
        total += metadata.size;
        let len = usize::try_from(metadata.size).expect("the driver holds sizes against the image");
        let data = reader.read(entry.node, 0, len + 1);
        let data = data.expect("metadata was sound, so the data is there");
        assert_eq!(data.len(), len, "node {}", entry.node);
    }
}
