//! Prints a file of an image: `cat IMAGE PATH`.

use std::error::Error;
use std::io::{self, Write};
use std::path::Path;

use forerun::Image;

/// Writes the file to `out`.
pub fn run(image: &Path, path: &str, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let image = Image::open(image)?;
    out.write_all(&image.read(path)?)?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [image, path] = args.as_slice() else {
        return Err("usage: cat IMAGE PATH".into());
    };
    run(image.as_ref(), path, &mut io::stdout().lock())
}
