//! Files whose data is on other devices already.
//!
//! They are stored as chunks, each of which starts at a block of a device.

use std::collections::HashMap;

use forerun_build::{BuildError, NodeIndex, Unreadable, WalkedFile, WalkedTree};
use forerun_io::BlobId;
use forerun_vfs::{Extent, Place};

use super::cannot;
use super::data::HOLE;
use super::options::ErofsOptions;

/// The longest chunk that both the format and an option of 32 bits can hold.
const CHUNK_BITS: u32 = 31;

#[derive(Default)]
pub struct Referenced {
    pub chunked: HashMap<NodeIndex, u32>,
    /// Device and block of each chunk.
    pub starts: HashMap<NodeIndex, Vec<(u16, u32)>>,
}

/// Takes the files out of the tree if the options name devices that have their data.
pub fn take(walked: &mut WalkedTree<'_>, options: &ErofsOptions) -> Result<Referenced, BuildError> {
    let mut taken = Referenced::default();
    if options.devices.is_empty() {
        return Ok(taken);
    }
    let mut devices = HashMap::new();
    for (number, device) in (1_u16..).zip(&options.devices) {
        devices.insert(device.blob, number);
    }
    let mut lens = options.devices.iter().map(|device| device.len);
    let bytes = lens.try_fold(0, u64::checked_add);
    let bytes = bytes.ok_or_else(|| cannot("devices of over 2^64 bytes".to_string()))?;
    // An image of a device needs at least four bytes for each of its chunks. Only damaged images
    // have more, because tables of different files overlap.
    let mut left = bytes / 4 + forerun_io::u64_from(walked.files.len());
    for file in std::mem::take(&mut walked.files) {
        let refuse = |reason: &str| {
            let path = walked.file_path(&file);
            Err(cannot(format!(
                "{}: {reason}",
                String::from_utf8_lossy(&path)
            )))
        };
        let extents = file.content.extents(file.len);
        let extents = extents.map_err(|error| walked.unreadable(&file, Unreadable::Io(error)))?;
        let runs = match runs(&extents, &devices, &file, options.block_size.into()) {
            Ok(runs) => runs,
            Err(reason) => return refuse(reason),
        };
        let bits = chunk_bits(&runs, file.len, options.block_bits());
        let count = file.len.div_ceil(1 << bits);
        let Some(rest) = left.checked_sub(count) else {
            return refuse("more chunks than its image can have");
        };
        left = rest;
        let Some(starts) = starts(&runs, file.len, bits, options.block_bits()) else {
            return refuse("data beyond the blocks that the format can address");
        };
        taken.chunked.insert(file.node, 1 << bits);
        taken.starts.insert(file.node, starts);
    }
    Ok(taken)
}

/// Contiguous bytes of a file up to the next run.
struct Run {
    at: u64,
    /// Device and offset; `None` for zeros.
    place: Option<(u16, u64)>,
}

fn runs(
    extents: &[Extent],
    devices: &HashMap<BlobId, u16>,
    file: &WalkedFile<'_>,
    block: u64,
) -> Result<Vec<Run>, &'static str> {
    let mut runs: Vec<Run> = Vec::new();
    let mut end = 0;
    for extent in extents {
        let at = extent.logical.start;
        let place = match extent.place {
            Place::Zero => None,
            Place::Stored { blob, offset } => match devices.get(&blob) {
                Some(&device) => Some((device, offset)),
                None => return Err("its data is on a device that is not listed"),
            },
            Place::Inline(_) => return Err("its last bytes are among metadata, not in a block"),
            Place::Encoded { .. } => return Err("its data is compressed"),
        };
        let goes_on = runs.last().is_some_and(|last| match (last.place, place) {
            (None, None) => true,
            (Some((device, offset)), Some(next)) => (device, offset + (at - last.at)) == next,
            _ => false,
        });
        if at != end {
            return Err("no place is known for a part of its data");
        }
        end = extent.logical.end;
        if goes_on {
            continue;
        }
        let offset = place.map_or(0, |(_, offset)| offset);
        if !at.is_multiple_of(block) || !offset.is_multiple_of(block) {
            return Err("its data does not start at a block of its device");
        }
        runs.push(Run { at, place });
    }
    if end == file.len {
        Ok(runs)
    } else {
        Err("no place is known for a part of its data")
    }
}

/// Returns log2 of the longest chunk that is in one run, wherever it starts.
fn chunk_bits(runs: &[Run], len: u64, block_bits: u32) -> u32 {
    let whole = len.next_power_of_two().ilog2().max(block_bits);
    let starts = runs.iter().skip(1).map(|run| run.at.trailing_zeros());
    starts.fold(whole.min(CHUNK_BITS), u32::min)
}

/// Returns device and block of each chunk. `None` if a block has no number.
fn starts(runs: &[Run], len: u64, bits: u32, block_bits: u32) -> Option<Vec<(u16, u32)>> {
    let ends = runs.iter().skip(1).map(|run| run.at).chain([len]);
    let mut starts = Vec::new();
    for (run, end) in runs.iter().zip(ends) {
        let mut at = run.at;
        while at < end {
            starts.push(match run.place {
                None => (0, HOLE),
                Some((device, offset)) => {
                    let block = (offset + (at - run.at)) >> block_bits;
                    let block = u32::try_from(block).ok().filter(|&block| block < HOLE)?;
                    (device, block)
                }
            });
            at += 1 << bits;
        }
    }
    Some(starts)
}
