//! Lookup of a name through all layers.

use forerun_vfs::{Error, Result};

use crate::follow;
use crate::ids::LayerNode;
use crate::stack::{Effect, Stack};
use crate::whiteout;

/// Looks up `name` in the merged `dirs`, topmost first. Returns no node, one node, or several
/// directories to merge. With `first`, the topmost of `dirs` is known to have that directory.
///
/// An opaque directory is recognised when it is listed, not here. If the metadata of a node below
/// others is damaged, the lookup ends with that node.
pub fn find(
    stack: &Stack,
    dirs: &[LayerNode],
    name: &[u8],
    first: Option<LayerNode>,
) -> Result<Vec<LayerNode>> {
    let whiteout = whiteout::hiding(name, stack.limits().name_len);
    let mut found: Vec<LayerNode> = first.into_iter().collect();
    if let Some(first) = first
        && let Some(lower) = redirected(stack, dirs.get(1..), first)?
    {
        found.extend(lower);
        return Ok(found);
    }
    // Look for whiteouts only if there is something to hide, and once in each directory.
    let mut searched = 0;
    for (index, &dir) in dirs.iter().enumerate().skip(found.len()) {
        let Some(node) = stack.lookup(dir, name)? else {
            continue;
        };
        if let Some(whiteout) = &whiteout {
            for &dir in &dirs[searched..index] {
                if stack.lookup(dir, whiteout)?.is_some() {
                    return Ok(found);
                }
            }
        }
        searched = index;
        match stack.effect(node) {
            Ok(Effect::Merges) => {
                found.push(node);
                if let Some(lower) = redirected(stack, dirs.get(index + 1..), node)? {
                    found.extend(lower);
                    return Ok(found);
                }
            }
            Ok(Effect::Replaces) if found.is_empty() => return Ok(vec![node]),
            Ok(Effect::Replaces | Effect::Hides) => return Ok(found),
            // It is unknown whether the damaged node hides or merges. Its reader must get the
            // error, not the reader of the directory around it.
            Err(Error::Corrupt(_)) if !found.is_empty() => {
                found.push(node);
                return Ok(found);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Returns the lower parts of a directory if overlayfs has recorded that they are at another path,
/// otherwise `None`. `below` are the directories of its parent in lower layers.
pub fn redirected(
    stack: &Stack,
    below: Option<&[LayerNode]>,
    dir: LayerNode,
) -> Result<Option<Vec<LayerNode>>> {
    let Some(redirect) = stack.redirect_if_sound(dir)? else {
        return Ok(None);
    };
    follow::parts(stack, below.unwrap_or_default(), dir, redirect).map(Some)
}
