//! Prints the last bytes of a file, using the traits of `std::io`: `tail IMAGE PATH BYTES`.

use std::error::Error;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;

use forerun::Image;

/// Writes the last `bytes` bytes of the file to `out`, or the whole file if it is shorter.
pub fn run(
    image: &Path,
    path: &str,
    bytes: u64,
    mut out: impl Write,
) -> Result<(), Box<dyn Error>> {
    let mut file = Image::open(image)?.file(path)?;
    let start = file.metadata().size.saturating_sub(bytes);
    file.seek(SeekFrom::Start(start))?;
    io::copy(&mut file, &mut out)?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [image, path, bytes] = args.as_slice() else {
        return Err("usage: tail IMAGE PATH BYTES".into());
    };
    run(image.as_ref(), path, bytes.parse()?, io::stdout().lock())
}
