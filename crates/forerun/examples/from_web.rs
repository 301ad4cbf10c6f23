//! Prints a file of an image on a web server; fetches only the parts that are read: `from_web
//! https://HOST/IMAGE PATH`.

use std::error::Error;
use std::io::{self, Write};

use forerun::OpenOptions;

/// Writes the file to `out`.
pub fn run(
    (url, path): (&str, &str),
    options: &OpenOptions,
    out: &mut dyn Write,
) -> Result<(), Box<dyn Error>> {
    let image = options.open(url)?;
    out.write_all(&image.read(path)?)?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [url, path] = args.as_slice() else {
        return Err("usage: from_web URL PATH".into());
    };
    // Fetched parts stay in the user's cache directory.
    let options = OpenOptions::new();
    run((url, path), &options, &mut io::stdout().lock())
}
