//! Prints the bytes at an offset of a file: `read_at IMAGE PATH OFFSET LEN`.

use std::error::Error;
use std::io::{self, Write};
use std::path::Path;

use forerun::Image;

/// Writes up to `len` bytes of the file from `offset` on to `out`.
pub fn run(
    (image, path): (&Path, &str),
    (offset, len): (u64, usize),
    out: &mut dyn Write,
) -> Result<(), Box<dyn Error>> {
    let file = Image::open(image)?.file(path)?;
    let mut bytes = vec![0; len];
    let read = file.read_at(offset, &mut bytes)?;
    out.write_all(&bytes[..read])?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [image, path, offset, len] = args.as_slice() else {
        return Err("usage: read_at IMAGE PATH OFFSET LEN".into());
    };
    let range = (offset.parse()?, len.parse()?);
    run((image.as_ref(), path), range, &mut io::stdout().lock())
}
