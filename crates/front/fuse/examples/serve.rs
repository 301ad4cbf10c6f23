//! Mounts an image from another program: `serve IMAGE DIR [OPTIONS]`. Ends when the mount is
//! unmounted.
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::path::Path;

use forerun::Image;
use forerun_fuse::{MountOptions, mount};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [image, dir, options @ ..] = args.as_slice() else {
        return Err("usage: serve IMAGE DIR [OPTIONS]".into());
    };
    let mut options = MountOptions::parse(&options.join(","))?;
    // For benchmarks.
    options.push = std::env::var_os("NO_PUSH").is_none();
    options.lift_readahead = std::env::var_os("NO_LIFT").is_none();
    let image = Image::open_with(Path::new(image), &options.open_options())?;
    let mut mount = mount(&image, Path::new(dir), &options)?;
    println!("mounted on {}", mount.path().display());
    mount.wait()?;
    print!("{}{}", mount.requests(), mount.stats());
    Ok(())
}
