//! Counts the files of an image and their bytes: `du IMAGE`.

use std::error::Error;
use std::io::{self, Write};
use std::path::Path;

use forerun::{FileType, Image};

/// Writes the number of files and their total length to `out`.
pub fn run(image: &Path, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let image = Image::open(image)?;
    let (mut files, mut bytes) = (0_u64, 0_u64);
    for entry in image.walk() {
        let entry = entry?;
        if entry.file_type() == FileType::Regular {
            files += 1;
            bytes = bytes.saturating_add(entry.metadata()?.size);
        }
    }
    writeln!(out, "{files} files, {bytes} bytes")?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [image] = args.as_slice() else {
        return Err("usage: du IMAGE".into());
    };
    run(image.as_ref(), &mut io::stdout().lock())
}
