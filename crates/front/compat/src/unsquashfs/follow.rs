//! `-follow-symlinks`: the symbolic links on a path, and its target.

use std::collections::VecDeque;

use forerun::Image;
use forerun::vfs::{FileType, FollowLast, Result, resolve};

use super::{Stop, complain};

/// Adds the links and directories that are needed to resolve the paths. Reports a path without a
/// target; with `missing`, such a path stops the program.
pub fn resolved(
    image: &Image,
    paths: &[Vec<u8>],
    missing: bool,
) -> std::result::Result<Vec<Vec<u8>>, Stop> {
    let mut all = Vec::new();
    for path in paths {
        if steps(image, path, &mut all).is_err() {
            let shown = String::from_utf8_lossy(path);
            let text = format!("Extract filename {shown} can't be resolved");
            if missing {
                return Err(Stop::Fatal(text));
            }
            complain(&text);
            all.push(path.clone());
        }
    }
    all.retain(|path| !path.is_empty());
    Ok(all)
}

/// Adds the links on the way of `path`, and its target.
fn steps(image: &Image, path: &[u8], all: &mut Vec<Vec<u8>>) -> Result<()> {
    let (fs, limits) = (image.reader().fs(), image.reader().limits());
    // Fails for missing entries and link loops.
    resolve(fs, path, FollowLast::Yes, limits)?;
    let split = |path: &[u8]| -> Vec<Vec<u8>> {
        let names = path.split(|byte| *byte == b'/');
        names
            .filter(|name| !matches!(*name, b"" | b"."))
            .map(<[u8]>::to_vec)
            .collect()
    };
    let mut left = VecDeque::from(split(path));
    let mut above: Vec<Vec<u8>> = Vec::new();
    while let Some(name) = left.pop_front() {
        if name == b".." {
            above.pop();
            continue;
        }
        above.push(name);
        let here = above.join(&b'/');
        let node = resolve(fs, &here, FollowLast::No, limits)?;
        if fs.metadata(node)?.kind == FileType::Symlink {
            all.push(here);
            above.pop();
            let target = fs.read_link(node)?;
            if target.starts_with(b"/") {
                above.clear();
            }
            for name in split(&target).into_iter().rev() {
                left.push_front(name);
            }
        }
    }
    all.push(above.join(&b'/'));
    Ok(())
}
