//! Makes a composefs image from a text in the format of composefs-dump(5), for comparison with the
//! image of `mkcomposefs --from-file`: `from_dump DUMP IMAGE [MIN_VERSION MAX_VERSION]`.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

use std::fs::File;

use forerun_composefs::write::{ComposefsOptions, write_metadata};

#[path = "../tests/it/common/dump.rs"]
mod dump;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let text = std::fs::read(&arguments[0]).unwrap();
    let (tree, files) = dump::parse(&text);
    let mut options = ComposefsOptions::default();
    if let [_, _, min, max] = &arguments[..] {
        options.min_version = min.parse().unwrap();
        options.max_version = max.parse().unwrap();
    }
    let mut out = File::create(&arguments[1]).unwrap();
    let observer = std::sync::Arc::default();
    let written = write_metadata(&tree, &files, &options, &mut out, &observer).unwrap();
    println!("{}", written.digest);
}
