//! Requests to the device, merged from neighbouring extents.

use std::ops::{ControlFlow, Range};

use forerun_io::BlobId;
use forerun_vfs::{Error, Extent, NodeId, Place, Result};

use super::Volume;

/// A part of a file that is one request, or zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Never empty.
    pub logical: Range<u64>,
    /// The offset on the device, or `None` for zeros that are not stored.
    pub place: Option<u64>,
}

pub fn clip(run: &Run, range: Range<u64>) -> Option<Run> {
    let start = run.logical.start.max(range.start);
    let end = run.logical.end.min(range.end);
    (start < end).then(|| Run {
        logical: start..end,
        place: run.place.map(|place| place + (start - run.logical.start)),
    })
}

/// Merges extents that follow each other in the file and on the device.
pub fn merged(extents: Vec<Extent>) -> Result<Vec<Run>> {
    let mut runs: Vec<Run> = Vec::with_capacity(extents.len());
    for extent in extents {
        let place = match extent.place {
            Place::Zero => None,
            Place::Stored {
                blob: BlobId::IMAGE,
                offset,
            } => Some(offset),
            Place::Stored { .. } | Place::Encoded { .. } | Place::Inline(_) => {
                return Err(Error::Unsupported(
                    "data that is not stored as it is, on a volume that can be changed".into(),
                ));
            }
        };
        match runs.last_mut() {
            Some(last) if follows(last, extent.logical.start, place) => {
                last.logical.end = extent.logical.end;
            }
            _ => runs.push(Run {
                logical: extent.logical,
                place,
            }),
        }
    }
    Ok(runs)
}

fn follows(last: &Run, start: u64, place: Option<u64>) -> bool {
    let len = last.logical.end - last.logical.start;
    last.logical.end == start
        && match (last.place, place) {
            (None, None) => true,
            (Some(last), Some(place)) => last.checked_add(len) == Some(place),
            (None, Some(_)) | (Some(_), None) => false,
        }
}

/// Creates the error for a byte that the driver did not map.
pub fn gap(node: NodeId, offset: u64) -> Error {
    let lost = format!("no extent for byte {offset} of node {node}");
    Error::io(0, 0, std::io::Error::other(lost))
}

impl Volume {
    pub(super) fn runs(&self, node: NodeId, range: Range<u64>) -> Result<Vec<Run>> {
        let mut extents = Vec::new();
        self.fs.map(node, range, &mut |extent| {
            extents.push(extent);
            ControlFlow::Continue(())
        })?;
        merged(extents)
    }
}
