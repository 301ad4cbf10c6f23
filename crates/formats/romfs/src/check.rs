//! Checks that reading does not need: checksums of headers, reserved fields, `.` and `..`.
//!
//! A walk checks every node once. Headers that are not nodes, such as hard links, `.` and `..`, are
//! checked along with their directory.

use forerun_vfs::{Error, NodeId, Problem, Result};

use crate::chain::Chain;
use crate::error::Check;
use crate::header::{Header, Kind};
use crate::image::Image;

/// Images are padded to this length, because devices are read in blocks of it.
const PADDING: u64 = 1024;

pub fn image(image: &Image, report: &mut dyn FnMut(Problem)) {
    let (full_size, source_len) = (image.superblock.full_size, image.source_len());
    if source_len < full_size.next_multiple_of(PADDING) {
        let check = Check::Padding {
            full_size,
            source_len,
        };
        report(problem(None, full_size, check));
    }
}

/// Checks the header of a node. For a directory, also checks the headers in it that are not nodes.
/// If its chain is damaged, the listing of the directory reports that.
pub fn node(image: &Image, node: NodeId, report: &mut dyn FnMut(Problem)) -> Result<()> {
    let header = image.node(node)?;
    check_header(node, &header, report);
    let Kind::Directory { first } = header.kind else {
        return Ok(());
    };
    let (mut dot, mut dots) = (false, false);
    for header in Chain::new(image, node, first) {
        let header = match header {
            Ok(header) => header,
            Err(error @ Error::Io { .. }) => return Err(error),
            Err(_) => return Ok(()),
        };
        if header.offset != node.0 && (header.is_dot() || header.file_type().is_none()) {
            check_header(node, &header, report);
        }
        let (seen, name) = match &header.name[..] {
            b"." => (&mut dot, "."),
            b".." => (&mut dots, ".."),
            _ => continue,
        };
        *seen = true;
        check_dot(image, node, name, header, report)?;
    }
    for (seen, name) in [(dot, "."), (dots, "..")] {
        if !seen {
            report(problem(Some(node), node.0, Check::DotMissing { name }));
        }
    }
    Ok(())
}

fn check_header(node: NodeId, header: &Header, report: &mut dyn FnMut(Problem)) {
    for check in header.deviations() {
        report(problem(Some(node), header.offset, check));
    }
}

fn check_dot(
    image: &Image,
    node: NodeId,
    name: &'static str,
    header: Header,
    report: &mut dyn FnMut(Problem),
) -> Result<()> {
    let at = header.offset;
    let target = match image.follow(header) {
        Ok(target) => target,
        Err(error @ Error::Io { .. }) => return Err(error),
        Err(error) => {
            report(Problem {
                node: Some(node),
                fatal: false,
                error,
            });
            return Ok(());
        }
    };
    let (sound, expected) = match name {
        "." => (target.offset == node.0, "the directory itself"),
        _ => (matches!(target.kind, Kind::Directory { .. }), "a directory"),
    };
    if !sound {
        let check = Check::DotElsewhere {
            name,
            found: target.offset,
            expected,
        };
        report(problem(Some(node), at, check));
    }
    Ok(())
}

/// Creates a problem. A wrong checksum is fatal, because some byte of the header has changed. The
/// other checks are of fields without effect.
fn problem(node: Option<NodeId>, offset: u64, check: Check) -> Problem {
    Problem {
        node,
        fatal: matches!(check, Check::HeaderChecksum { .. }),
        error: check.at(node, offset),
    }
}
