//! Copies one file out of an image, of any length: `extract_one IMAGE PATH TARGET`.

use std::error::Error;
use std::fs::File;
use std::io;
use std::path::Path;

use forerun::Image;

/// Copies the file to a new file `target`, which must not exist. Returns its length.
pub fn run(image: &Path, path: &str, target: &Path) -> Result<u64, Box<dyn Error>> {
    let mut file = Image::open(image)?.file(path)?;
    let mut copy = File::create_new(target)?;
    Ok(io::copy(&mut file, &mut copy)?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [image, path, target] = args.as_slice() else {
        return Err("usage: extract_one IMAGE PATH TARGET".into());
    };
    run(image.as_ref(), path, target.as_ref())?;
    Ok(())
}
