//! Reads everything in an image and reports all damage: `check IMAGE`.

use std::error::Error;
use std::io::{self, Write};
use std::path::Path;

use forerun::{FileType, Image};

/// Writes a line for each problem to `out`. Returns the number of problems.
pub fn run(image: &Path, out: &mut dyn Write) -> Result<usize, Box<dyn Error>> {
    let image = Image::open(image)?;
    let mut problems = Vec::new();
    // Checks what reading skips: checksums and reserved fields of the image as a whole.
    let report = &mut |found: forerun::vfs::Problem| problems.push(found.error.to_string());
    image.reader().fs().check(None, report)?;
    for entry in image.walk() {
        let read = entry.and_then(|entry| match entry.file_type() {
            FileType::Regular => Ok(io::copy(&mut entry.file()?, &mut io::sink())),
            _ => Ok(Ok(0)),
        });
        problems.extend(read.map_or_else(
            |error| Some(error.to_string()),
            |read| read.err().map(|error| error.to_string()),
        ));
    }
    for problem in &problems {
        writeln!(out, "{problem}")?;
    }
    Ok(problems.len())
}

fn main() -> Result<(), Box<dyn Error>> {
    let image = std::env::args_os().nth(1).ok_or("usage: check IMAGE")?;
    match run(image.as_ref(), &mut io::stdout().lock())? {
        0 => Ok(()),
        found => Err(format!("{found} problems").into()),
    }
}
