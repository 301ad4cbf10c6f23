//! Paths with wildcards, as a shell expands them.

use forerun_build::Patterns;
use forerun_engine::Reader;
use forerun_vfs::{Error, FollowLast, Held, resolve};

use crate::ExportError;

/// Characters that make a path a pattern.
const WILDCARDS: &[u8] = b"*?[{";

/// Returns the paths in the image that `path` stands for, in byte order, with a leading
/// slash if it has one. That is the path itself if it is
/// there, or has no wildcards; else all that match. `*`, `?`, `[...]` and `{a,b}` stay inside one name, `**`
/// crosses slashes.
///
/// # Errors
/// [`Error::NotFound`] if nothing matches, a pattern that is none, and what cannot be read on the way.
pub fn expand(reader: &Reader, path: &[u8]) -> Result<Vec<Vec<u8>>, ExportError> {
    let failed = |error: Error| ExportError::image(path, error);
    let first = path.iter().position(|byte| WILDCARDS.contains(byte));
    let literal = resolve(reader.fs(), path, FollowLast::No, reader.limits());
    let (Some(first), Err(Error::NotFound | Error::NotADirectory)) = (first, &literal) else {
        return Ok(vec![path.to_vec()]);
    };
    // Patterns are text. Bytes that are none are spelled as characters in pattern and names alike.
    let is_text = std::str::from_utf8(path).is_ok();
    let pattern = spelled(path);
    let components: Vec<_> = pattern.split('/').filter(|name| !name.is_empty()).collect();
    let pattern = format!("/{}", components.join("/"));
    let patterns = Patterns::new([&pattern]).map_err(ExportError::Pattern)?;
    let above = &path[..first];
    let slash = above.iter().rposition(|&byte| byte == b'/');
    let above = &above[..slash.unwrap_or(0)];
    let start = resolve(reader.fs(), above, FollowLast::Yes, reader.limits()).map_err(failed)?;
    let depth = if pattern.contains("**") {
        usize::MAX
    } else {
        names(path).count()
    };
    let is_absolute = path.starts_with(b"/");
    let mut held = Held::new(reader.limits());
    let mut found = Vec::new();
    let mut walk = reader.walk(start);
    while let Some(entry) = walk.next() {
        let entry = entry.map_err(|error| failed(error.into()))?;
        let path: Vec<_> = names(above).chain(names(&entry.path)).collect();
        if path.len() >= depth {
            walk.skip_children();
        }
        let path = path.join(&b'/');
        let is_match = if is_text {
            patterns.matches(&path)
        } else {
            patterns.matches(spelled(&path).as_bytes())
        };
        // The root is no name in a directory.
        if is_match && !path.is_empty() {
            held.add(size_of::<Vec<u8>>() + path.len())
                .map_err(failed)?;
            let root: &[u8] = if is_absolute { b"/" } else { b"" };
            found.push([root, &path].concat());
        }
    }
    found.sort();
    if found.is_empty() {
        Err(failed(Error::NotFound))
    } else {
        Ok(found)
    }
}

/// Returns the path with a private-use character for each byte that is no text.
fn spelled(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len());
    for chunk in path.utf8_chunks() {
        text.push_str(chunk.valid());
        let spelled = |&byte: &u8| char::from_u32(0xf_0000 + u32::from(byte));
        text.extend(chunk.invalid().iter().filter_map(spelled));
    }
    text
}

fn names(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|&byte| byte == b'/')
        .filter(|name| !name.is_empty())
}
