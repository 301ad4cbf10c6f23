//! Lists a directory of an image with sizes: `ls IMAGE [PATH]`.

use std::error::Error;
use std::io::{self, Write};
use std::path::Path;

use forerun::Image;

/// Writes a line for each entry of the directory to `out`.
pub fn run(image: &Path, path: &str, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let image = Image::open(image)?;
    for entry in image.read_dir(path)? {
        let entry = entry?;
        let (kind, size) = (entry.file_type().letter(), entry.metadata()?.size);
        writeln!(out, "{kind} {size:>12} {}", entry.name().display())?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (image, path) = match args.as_slice() {
        [image] => (image, "/"),
        [image, path] => (image, path.as_str()),
        _ => return Err("usage: ls IMAGE [PATH]".into()),
    };
    run(image.as_ref(), path, &mut io::stdout().lock())
}
