//! The checks that reading does not run: local headers against the directory, overlapping members,
//! and the CRC-32 of uncompressed members.

use forerun_io::u64_from;
use forerun_vfs::{Error, FileType, NodeId, Problem, Result, Verifier};

use crate::archive::Zip;
use crate::end::read;
use crate::entry::{self, HEADER};
use crate::error::Check;
use crate::local;
use crate::method::Method;
use crate::node::Node;

/// Length of one read.
const CHUNK: u64 = 1 << 20;

/// Reports deviations that opening the archive noticed, and members that overlap.
pub fn whole(zip: &Zip, report: &mut dyn FnMut(Problem)) -> Result<()> {
    for (at, check) in &zip.directory.facts.warnings {
        report(problem(None, false, check.clone().at(*at)));
    }
    if let Some(damage) = &zip.directory.damage {
        report(problem(None, true, damage.clone()));
    }
    let mut end = 0;
    for &(header, id) in &zip.by_header {
        let node = zip.directory.tree.node(id)?;
        // Zip bombs consist of members that share their compressed data.
        if header < end {
            report(problem(
                Some(id),
                false,
                Check::Overlap { end }.of(id, header),
            ));
        }
        // Contents outside the archive are reported with their member.
        let contents = zip.contents(id, node);
        end = end.max(contents.map_or(header, |contents| contents.end));
    }
    Ok(())
}

pub fn member(zip: &Zip, id: NodeId, report: &mut dyn FnMut(Problem)) -> Result<()> {
    let node = zip.directory.tree.node(id)?;
    let Some(at) = node.entry.filter(|_| node.kind != FileType::Directory) else {
        return Ok(());
    };
    let end = zip.end.directory.start;
    let header = match local::header(&*zip.source, id, &node.data, end) {
        Ok(header) => header,
        Err(error) => return found(error, id, report),
    };
    let bytes = read(&*zip.source, at..at + u64_from(HEADER))?;
    if let Some(stated) = entry::header(&bytes) {
        let (method, flags) = (stated.method.get(), stated.flags.get());
        for check in local::differences(&header, node, method, flags) {
            report(problem(Some(id), false, check.of(id, node.data.header)));
        }
        // Programs that read an archive as a stream use the local name.
        let start = at + u64_from(HEADER);
        let name = read(
            &*zip.source,
            start..start + u64::from(stated.name_len.get()),
        )?;
        if let Some(local) = local::other_name(&*zip.source, &header, node, (&name, end))? {
            report(problem(Some(id), true, local.of(id, node.data.header)));
        }
    }
    if node.data.method != Method::Stored {
        return Ok(());
    }
    match sum(zip, id, node) {
        Ok(()) => Ok(()),
        Err(error) => found(error, id, report),
    }
}

fn sum(zip: &Zip, id: NodeId, node: &Node) -> Result<()> {
    let contents = zip.contents(id, node)?;
    let Some(mut sum) = zip.file_sum(id)? else {
        return Ok(());
    };
    let mut at = contents.start;
    while at < contents.end {
        let next = (at + CHUNK).min(contents.end);
        sum.take(&read(&*zip.source, at..next)?);
        at = next;
    }
    sum.finish()
}

/// Reports damage. Other errors end the check.
fn found(error: Error, id: NodeId, report: &mut dyn FnMut(Problem)) -> Result<()> {
    match error {
        Error::Corrupt(_) => {
            report(problem(Some(id), true, error));
            Ok(())
        }
        error => Err(error),
    }
}

const fn problem(node: Option<NodeId>, fatal: bool, error: Error) -> Problem {
    Problem { node, fatal, error }
}
