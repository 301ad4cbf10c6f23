//! Prints the paths whose names contain a text: `find IMAGE TEXT`.

use std::error::Error;
use std::io::{self, Write};
use std::path::Path;

use forerun::Image;

/// Writes each path whose name contains `text` to `out`. Continues after a directory that cannot be
/// read.
pub fn run(image: &Path, text: &str, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let image = Image::open(image)?;
    for entry in image.walk() {
        match entry {
            Ok(entry) if entry.name().to_string_lossy().contains(text) => {
                writeln!(out, "{}", entry.path().display())?;
            }
            Ok(_) => {}
            Err(error) => writeln!(io::stderr(), "find: {error}")?,
        }
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [image, text] = args.as_slice() else {
        return Err("usage: find IMAGE TEXT".into());
    };
    run(image.as_ref(), text, &mut io::stdout().lock())
}
