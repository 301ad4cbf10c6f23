//! Resolves the hard links to files of lower layers.

use forerun_io::{u16_from, u64_from};
use forerun_vfs::{Error, FileType, Held, Limits, Result};

use crate::find::find;
use crate::ids::LayerNode;
use crate::links::Link;
use crate::stack::{Effect, Stack};
use crate::whiteout;

/// Bytes that a link takes.
const LINK_LEN: usize = 2 * size_of::<(LayerNode, Link)>();

/// Finds the files of all links, the lowest layer first, because a link may lead to another link.
/// Fails with `Limit` if there are too many links, and with `Io` of lower layers.
pub fn links(stack: &mut Stack, limits: &Limits) -> Result<()> {
    let mut held = Held::new(limits);
    for number in 0..u16_from(u64_from(stack.layers().len())) {
        let (mut found, mut counted) = (Vec::new(), Ok(()));
        let layer = stack.layer(number);
        if let Some(layered) = layer.and_then(|layer| layer.fs.capabilities().layered) {
            layered.links_below(&mut |node, path| {
                if counted.is_ok() {
                    counted = held.add(LINK_LEN + path.len());
                    let layer = number;
                    found.push((LayerNode { layer, node }, path.to_vec()));
                }
            });
        }
        counted?;
        for (at, path) in found {
            let file = match file(stack, number, &path) {
                Err(error @ Error::Io { .. }) => return Err(error),
                // A path through damaged or unfollowed nodes leads nowhere.
                found => found.unwrap_or(None),
            };
            stack.links_mut().add(at, path, file);
        }
    }
    Ok(())
}

/// Returns the file at `path` in the layers below `number`. Follows no symbolic links.
fn file(stack: &Stack, number: u16, path: &[u8]) -> Result<Link> {
    let roots = (0..number).rev().filter_map(|layer| {
        let node = stack.layer(layer)?.fs.root();
        Some(LayerNode { layer, node })
    });
    let mut found: Vec<LayerNode> = roots.collect();
    for name in path.split(|&byte| byte == b'/') {
        if matches!(name, b"" | b".") {
            continue;
        }
        let is_name = name != b".." && !whiteout::is_marker(name);
        let is_dir = match found.first() {
            Some(&top) => stack.effect(top)? == Effect::Merges,
            None => false,
        };
        if !is_name || !is_dir {
            return Ok(None);
        }
        let mut visible = found.len();
        for (index, &dir) in found.iter().enumerate() {
            if stack.is_opaque(dir)? {
                visible = index + 1;
                break;
            }
        }
        found.truncate(visible);
        found = find(stack, &found, name, None)?;
    }
    let Some(&top) = found.first() else {
        return Ok(None);
    };
    let kind = stack.metadata(top)?.kind;
    Ok((kind != FileType::Directory).then_some((top, kind)))
}
