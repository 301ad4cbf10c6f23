//! Any bytes as a tar stream: what becomes of it is an error, or a tree whose image is sound.
#![no_main]

use std::io::Cursor;
use std::sync::Arc;

use forerun::build::{BuildError, TarInput, TarOptions, read_tar};
use forerun::{Observer, RomfsOptions, Writer};
use forerun_fuzz::in_time;
use forerun_romfs::fuzzing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| in_time(|| run(bytes)));

fn run(bytes: &[u8]) {
    let mut limits = fuzzing::limits();
    limits.depth = 16;
    limits.tree_entries = 1 << 8;
    limits.total_bytes = 1 << 20;
    let options = TarOptions {
        limits,
        ..TarOptions::default()
    };
    let stream = TarInput::Stream(Box::new(Cursor::new(bytes.to_vec())));
    let Ok(tree) = read_tar(stream, &options) else {
        return;
    };
    let mut image = Vec::new();
    let writer = Writer::Romfs(RomfsOptions::default());
    match writer.write(&tree, &mut image, &Arc::new(Observer::default())) {
        Ok(_) => assert!(fuzzing::walk(&image).is_empty()),
        // Long names, large device numbers.
        Err(BuildError::Format { .. }) => assert!(image.is_empty()),
        Err(error) => panic!("a tree in memory and a spool file: {error}"),
    }
}
