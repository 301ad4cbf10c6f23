//! Lookups in lower layers by another path than that of the node: as overlayfs follows a redirect,
//! and to find the contents of files of which it copied up only the metadata.
//!
//! Each lower layer is searched once, from the top. Redirects of directories on the path change the
//! path for the layers below.

use forerun_vfs::{FileType, Result};

use crate::check::MarkerCheck;
use crate::ids::LayerNode;
use crate::marks::{PATH_MAX, Redirect};
use crate::stack::{Effect, Stack};
use crate::whiteout;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Dirs,
    /// A file with contents.
    Contents,
}

/// The result of a search in one layer.
struct Step {
    found: Option<LayerNode>,
    /// Whether lower layers are hidden.
    stops: bool,
    /// The path in the layers below.
    next: Redirect,
}

/// Adds the lower parts of the directory at `top`, whose redirect leads elsewhere. `below` are the
/// directories of its parent in lower layers. Fails if a redirect cannot be followed.
pub fn parts(
    stack: &Stack,
    below: &[LayerNode],
    top: LayerNode,
    redirect: Redirect,
) -> Result<Vec<LayerNode>> {
    let mut found = Vec::new();
    walk(stack, below, top, redirect, Wanted::Dirs, &mut found)?;
    Ok(found)
}

/// Returns the file with the contents of `top`, of which overlayfs copied up only the metadata.
/// `top` is `name` in a directory; `below` is as for [`parts`]. Returns `None` if no layer has the
/// contents.
pub fn contents(
    stack: &Stack,
    below: &[LayerNode],
    top: LayerNode,
    name: &[u8],
) -> Result<Option<LayerNode>> {
    let redirect = stack.redirect(top)?;
    let redirect = redirect.unwrap_or_else(|| Redirect::Sibling(name.to_vec()));
    let mut found = Vec::new();
    walk(stack, below, top, redirect, Wanted::Contents, &mut found)?;
    Ok(found.pop())
}

fn walk(
    stack: &Stack,
    below: &[LayerNode],
    top: LayerNode,
    mut to: Redirect,
    wanted: Wanted,
    found: &mut Vec<LayerNode>,
) -> Result<()> {
    let root = |layer: u16| {
        let node = stack.layer(layer).map(|layer| layer.fs.root());
        node.map(|node| LayerNode { layer, node })
    };
    let mut layer = top.layer;
    if matches!(to, Redirect::Path(_)) && hides_below(stack, root(layer))? {
        return Ok(());
    }
    while let Some(lower) = layer.checked_sub(1) {
        layer = lower;
        let (base, names) = match &to {
            Redirect::Sibling(name) => {
                let base = below.iter().find(|dir| dir.layer == layer).copied();
                (base, vec![name.clone()])
            }
            Redirect::Path(names) => (root(layer), names.clone()),
        };
        let Some(base) = base else {
            continue;
        };
        let is_path = matches!(to, Redirect::Path(_));
        let step = through(stack, base, &names, is_path, wanted)?;
        if let Some(node) = step.found {
            // The node may be a hard link to a file of another layer.
            layer = node.layer;
            match wanted {
                Wanted::Contents if stack.marks(node)?.is_metacopy => {}
                Wanted::Dirs | Wanted::Contents => found.push(node),
            }
        }
        let is_below_root = matches!(step.next, Redirect::Path(_));
        if step.stops || (is_below_root && hides_below(stack, root(layer))?) {
            break;
        }
        to = step.next;
        let len = match &to {
            Redirect::Sibling(name) => name.len(),
            Redirect::Path(names) => names.iter().map(|name| name.len() + 1).sum(),
        };
        if len > PATH_MAX {
            return Err(stack.failed(top, MarkerCheck::Path { len }));
        }
    }
    Ok(())
}

fn hides_below(stack: &Stack, root: Option<LayerNode>) -> Result<bool> {
    root.map_or(Ok(true), |root| stack.is_opaque(root))
}

/// Looks up `names` in one layer, from the directory `base`, which is the root of the layer if they
/// are a path.
fn through(
    stack: &Stack,
    base: LayerNode,
    names: &[Vec<u8>],
    is_path: bool,
    wanted: Wanted,
) -> Result<Step> {
    let (mut at, mut stops, mut is_path) = (base, false, is_path);
    let mut next = Vec::new();
    let step = |found, stops, is_path, mut next: Vec<Vec<u8>>, rest: &[Vec<u8>]| {
        next.extend(rest.iter().cloned());
        let next = match (is_path, next.pop()) {
            (false, Some(name)) => Redirect::Sibling(name),
            (_, name) => Redirect::Path(next.into_iter().chain(name).collect()),
        };
        Ok(Step { found, stops, next })
    };
    for (index, name) in names.iter().enumerate() {
        let (rest, is_last) = (&names[index..], index + 1 == names.len());
        if whiteout::is_marker(name) {
            return step(None, true, is_path, next, rest);
        }
        let hiding = whiteout::hiding(name, stack.limits().name_len);
        if let Some(hiding) = hiding {
            stops |= stack.lookup(at, &hiding)?.is_some();
        }
        let Some(node) = stack.lookup(at, name)? else {
            return step(None, stops, is_path, next, rest);
        };
        let is_wanted = match stack.effect(node)? {
            Effect::Hides => false,
            Effect::Merges => !is_last || wanted == Wanted::Dirs,
            Effect::Replaces => {
                is_last
                    && wanted == Wanted::Contents
                    && stack.metadata(node)?.kind == FileType::Regular
            }
        };
        if !is_wanted {
            return step(None, true, is_path, next, rest);
        }
        at = node;
        if wanted == Wanted::Contents && is_last && !stack.marks(at)?.is_metacopy {
            return step(Some(at), true, is_path, next, rest);
        }
        if stack.is_dir(at)? && stack.is_opaque(at)? {
            stops = true;
        }
        match stack.redirect(at)? {
            Some(Redirect::Path(names)) => (next, is_path, stops) = (names, true, false),
            Some(Redirect::Sibling(name)) => next.push(name),
            None => next.push(name.clone()),
        }
    }
    step(Some(at), stops, is_path, next, &[])
}
