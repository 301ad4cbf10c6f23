//! Expands wildcards in paths like a shell.

use forerun_build::Patterns;
use forerun_engine::Reader;
use forerun_vfs::{Error, FollowLast, Held, resolve};

use crate::ExportError;

const WILDCARDS: &[u8] = b"*?[{";

/// Returns the paths that match `path`, in byte order, with a leading slash if `path` has one. A
/// path that exists or has no wildcards is returned unchanged. `*`, `?`, `[...]` and `{a,b}` match
/// within one name; `**` crosses slashes.
///
/// # Errors
/// [`Error::NotFound`] if nothing matches; an invalid pattern; a directory that cannot be read.
pub fn expand(reader: &Reader, path: &[u8]) -> Result<Vec<Vec<u8>>, ExportError> {
    let failed = |error: Error| ExportError::image(path, error);
    let first = path.iter().position(|byte| WILDCARDS.contains(byte));
    let literal = resolve(reader.fs(), path, FollowLast::No, reader.limits());
    let (Some(first), Err(Error::NotFound | Error::NotADirectory)) = (first, &literal) else {
        return Ok(vec![path.to_vec()]);
    };
    // Patterns must be text, so bytes that are not UTF-8 are replaced by the same characters in
    // pattern and names.
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
        // The root has no name, so it matches no pattern.
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

/// Returns the path as text, with a private-use character for each byte that is not UTF-8.
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
