//! The difference of two trees, for people.

use std::collections::BTreeSet;
use std::fmt;

use forerun_vfs::FileType;

use super::{Keeps, ModeKept, ModelNode, TreeModel};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub path: Vec<u8>,
    pub what: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}: {}", self.path.escape_ascii(), self.what)
    }
}

/// Lists all differences between two trees in the attributes of `keeps`, in the order of the paths.
pub fn diff(expected: &TreeModel, actual: &TreeModel, keeps: &Keeps) -> Vec<Difference> {
    let paths: BTreeSet<&Vec<u8>> = expected.nodes.keys().chain(actual.nodes.keys()).collect();
    let mut differences = Vec::new();
    for path in paths {
        let mut differ = |what: String| {
            differences.push(Difference {
                path: path.clone(),
                what,
            });
        };
        let of = |tree: &TreeModel| {
            tree.nodes
                .get(path)
                .filter(|node| is_kept(node, keeps))
                .cloned()
        };
        match (of(expected), of(actual)) {
            (Some(expected), Some(actual)) => compare(&expected, &actual, keeps, &mut differ),
            (Some(expected), None) => differ(format!("{} is missing", expected.kind.name())),
            (None, Some(actual)) => {
                differ(format!("{} that should not be there", actual.kind.name()))
            }
            (None, None) => {}
        }
    }
    differences
}

const fn is_kept(node: &ModelNode, keeps: &Keeps) -> bool {
    match node.kind {
        FileType::Directory | FileType::Regular | FileType::Symlink => true,
        FileType::BlockDevice | FileType::CharDevice | FileType::Fifo | FileType::Socket => {
            keeps.special
        }
    }
}

fn compare(
    expected: &ModelNode,
    actual: &ModelNode,
    keeps: &Keeps,
    differ: &mut dyn FnMut(String),
) {
    if expected.kind != actual.kind {
        let (expected, actual) = (expected.kind.name(), actual.kind.name());
        differ(format!("{actual} instead of {expected}"));
        return;
    }
    if expected.size != actual.size {
        differ(format!(
            "{} bytes instead of {}",
            actual.size, expected.size
        ));
    } else if expected.content != actual.content {
        differ(format!("other contents in {} bytes", actual.size));
    }
    if expected.target != actual.target {
        let show = |target: &Option<Vec<u8>>| target.clone().unwrap_or_default();
        let (actual, expected) = (show(&actual.target), show(&expected.target));
        let (actual, expected) = (actual.escape_ascii(), expected.escape_ascii());
        differ(format!("target {actual:?} instead of {expected:?}"));
    }
    if expected.device != actual.device {
        let (actual, expected) = (actual.device, expected.device);
        differ(format!("device {actual:?} instead of {expected:?}"));
    }
    compare_mode(expected, actual, keeps, differ);
    if keeps.owners && (expected.uid, expected.gid) != (actual.uid, actual.gid) {
        differ(format!(
            "owner {}:{} instead of {}:{}",
            actual.uid, actual.gid, expected.uid, expected.gid
        ));
    }
    if keeps.times && expected.mtime.seconds != actual.mtime.seconds {
        let (actual, expected) = (actual.mtime.seconds, expected.mtime.seconds);
        differ(format!("mtime {actual} instead of {expected}"));
    }
    if keeps.hard_links && expected.linked_to != actual.linked_to {
        let show = |path: &Option<Vec<u8>>| match path {
            Some(path) => format!("linked to /{}", path.escape_ascii()),
            None => "not a hard link".to_string(),
        };
        let (actual, expected) = (show(&actual.linked_to), show(&expected.linked_to));
        differ(format!("{actual} instead of {expected}"));
    }
}

fn compare_mode(
    expected: &ModelNode,
    actual: &ModelNode,
    keeps: &Keeps,
    differ: &mut dyn FnMut(String),
) {
    let (old, new) = (expected.mode, actual.mode);
    match keeps.modes {
        ModeKept::All if old != new => differ(format!("mode {new:04o} instead of {old:04o}")),
        ModeKept::Executable
            if expected.kind == FileType::Regular && (old & 0o111 == 0) != (new & 0o111 == 0) =>
        {
            differ(format!(
                "mode {new:04o} instead of {old:04o}: whether it is executable differs"
            ));
        }
        ModeKept::All | ModeKept::Executable | ModeKept::None => {}
    }
}
