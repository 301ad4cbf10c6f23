//! The check of a stack: the checks of each layer, and of markers that have no effect or are
//! unknown.

use std::ops::ControlFlow;

use forerun_vfs::{Corrupt, DirCursor, Error, OverlayAttribute, Problem, Result};

use crate::ids::{LayerNode, Named};
use crate::stack::{Layer, Stack};
use crate::whiteout::{self, OPAQUE};

/// A defect of a whiteout or of an attribute of overlayfs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MarkerCheck {
    #[error("the whiteout {name:?} hides nothing: what follows .wh. is not a valid name")]
    Name { name: String },
    #[error("the attribute overlay.{name} of overlayfs is not followed")]
    Attribute { name: &'static str },
    #[error("the overlayfs redirect {value:?} is neither a name nor an absolute path")]
    Redirect { value: String },
    #[error("the overlayfs redirect {value:?} names nothing in the lower layers")]
    Nowhere { value: String },
    #[error("an overlayfs redirect makes a path of {len} bytes, which is too long")]
    Path { len: usize },
    #[error("the attribute overlay.metacopy has an unknown form of {len} bytes")]
    Metacopy { len: usize },
    #[error("its contents are in a lower layer (overlay.metacopy), but no lower layer has them")]
    NoContents,
    #[error("its contents in the lower layer have {found} bytes instead of {size}")]
    ContentsLen { found: u64, size: u64 },
    #[error("a hard link is left out: no lower layer has a file {path:?}")]
    Link { path: String },
}

/// Runs the checks of each layer as a whole. Fails with an error that ends the check of a layer.
pub fn whole(stack: &Stack, report: &mut dyn FnMut(Problem)) -> Result<()> {
    for (layer, number) in stack.layers().iter().zip(0..) {
        let mut of_layer = |problem| report(translated(layer, number, problem));
        let checked = layer.fs.check(None, &mut of_layer);
        checked.map_err(|error| error.in_image(&layer.name))?;
        for (at, path) in stack.links().lost() {
            if at.layer == number {
                let path = String::from_utf8_lossy(path).into_owned();
                report(problem(layer, *at, false, MarkerCheck::Link { path }));
            }
        }
    }
    Ok(())
}

/// Runs the checks of one node of a layer, and reports its markers without effect. Fails with an
/// error that ends the check of the layer.
pub fn node(stack: &Stack, at: LayerNode, report: &mut dyn FnMut(Problem)) -> Result<()> {
    let Some(layer) = stack.layer(at.layer) else {
        return Ok(());
    };
    let mut of_layer = |problem| report(translated(layer, at.layer, problem));
    stack.call(at, |fs, node| fs.check(Some(node), &mut of_layer))?;
    // The caller reads the directory too, and reports errors.
    if let Ok(true) = stack.metadata(at).map(|metadata| metadata.is_dir()) {
        let _reported_by_the_caller = markers(stack, layer, at, report);
    }
    let _reported_by_the_caller = stack.xattrs(at, &mut |name, value| {
        let name = match OverlayAttribute::of(name) {
            Some(OverlayAttribute::Own(b"opaque")) if value == b"x" => "opaque",
            // For a file, its reader reports the error.
            Some(OverlayAttribute::Own(b"redirect")) if at.layer == 0 => "redirect",
            _ => return,
        };
        let fatal = name == "opaque";
        report(problem(layer, at, fatal, MarkerCheck::Attribute { name }));
    });
    Ok(())
}

fn markers(
    stack: &Stack,
    layer: &Layer,
    dir: LayerNode,
    report: &mut dyn FnMut(Problem),
) -> Result<()> {
    let limit = stack.limits().name_len;
    stack.read_dir(dir, DirCursor::START, &mut |_, entry| {
        let is_whiteout = whiteout::is_marker(entry.name) && entry.name != OPAQUE;
        if is_whiteout && whiteout::hidden(entry.name, limit).is_none() {
            let name = String::from_utf8_lossy(entry.name).into_owned();
            report(problem(layer, dir, false, MarkerCheck::Name { name }));
        }
        ControlFlow::Continue(())
    })
}

fn problem(layer: &Layer, at: LayerNode, fatal: bool, check: MarkerCheck) -> Problem {
    let format = layer.fs.volume().format;
    let error = Error::from(Corrupt::new(format, Some(at.node), 0, check));
    Problem {
        node: Named::Single(at).id().ok(),
        fatal,
        error: error.in_image(&layer.name),
    }
}

/// Adds the name of the layer to a problem, and translates the node to its id in the merge.
fn translated(layer: &Layer, number: u16, problem: Problem) -> Problem {
    let of_layer = |node| LayerNode {
        layer: number,
        node,
    };
    let node = problem.node.map(of_layer);
    Problem {
        node: node.and_then(|at| Named::Single(at).id().ok()),
        error: problem.error.in_image(&layer.name),
        ..problem
    }
}
