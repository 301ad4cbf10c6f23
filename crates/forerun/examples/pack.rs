//! Makes a SquashFS image of a directory: `pack DIR IMAGE`.

use std::error::Error;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use forerun::Writer;
use forerun::build::{ScanOptions, SquashfsOptions, scan};

/// Writes the image to a new file, which must not exist. Returns its length in bytes.
pub fn run(dir: &Path, image: &Path) -> Result<u64, Box<dyn Error>> {
    let tree = scan(dir, &ScanOptions::default())?;
    let mut out = File::create_new(image)?;
    let writer = Writer::Squashfs(SquashfsOptions::default());
    let written = writer.write(&tree, &mut out, &Arc::default())?;
    out.sync_all()?;
    Ok(written.len)
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [dir, image] = args.as_slice() else {
        return Err("usage: pack DIR IMAGE".into());
    };
    run(dir.as_ref(), image.as_ref())?;
    Ok(())
}
