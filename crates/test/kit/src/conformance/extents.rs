//! Maps: they cover a file exactly, and parts of a map agree with the whole.

use std::ops::{ControlFlow, Range};

use forerun_io::u64_from;
use forerun_vfs::{Extent, FileSystem, NodeId, Place, Result};

pub fn map(fs: &dyn FileSystem, node: NodeId, range: Range<u64>) -> Result<Vec<Extent>> {
    let mut extents = Vec::new();
    fs.map(node, range, &mut |extent| {
        extents.push(extent);
        ControlFlow::Continue(())
    })?;
    Ok(extents)
}

pub fn check_file(fs: &dyn FileSystem, node: NodeId, size: u64) {
    let whole = map(fs, node, 0..size).expect("the map of a file");
    covers(node, &whole, &(0..size), size);
    for range in ranges(&whole, size) {
        let extents = map(fs, node, range.clone()).expect("the map of a part of a file");
        let clamped = range.start.min(size)..range.end.min(size);
        covers(node, &extents, &clamped, size);
        for position in probes(&clamped) {
            let (part, all) = (place_at(&extents, position), place_at(&whole, position));
            assert_eq!(
                part, all,
                "node {node}: byte {position} is elsewhere when {range:?} is mapped"
            );
        }
    }
    stops_on_break(fs, node, whole.len(), size);
}

fn covers(node: NodeId, extents: &[Extent], range: &Range<u64>, size: u64) {
    if range.is_empty() {
        assert!(
            extents.is_empty(),
            "node {node}: extents for the empty range {range:?}"
        );
        return;
    }
    let first = extents.first().map(|extent| extent.logical.start);
    assert!(
        first.is_some_and(|start| start <= range.start),
        "node {node}: the map of {range:?} begins at {first:?}"
    );
    let mut position = first.unwrap_or(0);
    for extent in extents {
        let logical = &extent.logical;
        assert!(
            logical.start < logical.end,
            "node {node}: empty extent {logical:?}"
        );
        assert_eq!(
            logical.start, position,
            "node {node}: gap or overlap in {range:?}"
        );
        position = logical.end;
        check_place(node, extent);
    }
    assert!(
        position >= range.end,
        "node {node}: the map of {range:?} ends at {position}"
    );
    assert!(
        position <= size,
        "node {node}: the map of {range:?} ends at {position}, past the size {size}"
    );
    // Only the first and last extent may extend past the range.
    for inner in extents.iter().skip(1) {
        assert!(
            inner.logical.start < range.end,
            "node {node}: extent {:?} lies past {range:?}",
            inner.logical
        );
    }
    assert!(
        extents
            .first()
            .is_none_or(|extent| extent.logical.end > range.start),
        "node {node}: the first extent lies before {range:?}"
    );
}

fn check_place(node: NodeId, extent: &Extent) {
    let len = extent.logical.end - extent.logical.start;
    match &extent.place {
        Place::Zero => {}
        Place::Stored { offset, .. } => assert!(
            offset.checked_add(len).is_some(),
            "node {node}: {len} bytes stored at {offset}"
        ),
        Place::Encoded { block, skip } => assert!(
            u64::from(*skip) + len <= u64::from(block.decoded_len.max()),
            "node {node}: {len} bytes after {skip} of a block of {}",
            block.decoded_len.max()
        ),
        Place::Inline(bytes) => assert_eq!(u64_from(bytes.len()), len, "node {node}: inline bytes"),
    }
}

/// The source of one byte of the file, so that clamped and whole extents compare equal.
#[derive(Debug, PartialEq, Eq)]
enum Origin {
    Zero,
    Stored(u32, u64),
    Encoded(u32, u64, u64),
    Inline(u8),
}

fn place_at(extents: &[Extent], position: u64) -> Option<Origin> {
    let extent = extents
        .iter()
        .find(|extent| extent.logical.contains(&position))?;
    let within = position - extent.logical.start;
    Some(match &extent.place {
        Place::Zero => Origin::Zero,
        Place::Stored { blob, offset } => Origin::Stored(blob.0, offset + within),
        Place::Encoded { block, skip } => {
            Origin::Encoded(block.blob.0, block.offset, u64::from(*skip) + within)
        }
        Place::Inline(bytes) => Origin::Inline(*bytes.get(usize::try_from(within).ok()?)?),
    })
}

/// Returns ranges at and across boundaries of extents, at the end of the file, and past it.
fn ranges(whole: &[Extent], size: u64) -> Vec<Range<u64>> {
    let mut ranges = vec![
        0..0,
        0..1,
        0..u64::MAX,
        size..size,
        size..u64::MAX,
        size.saturating_sub(1)..size,
        size.saturating_sub(1)..size.saturating_add(1),
        size / 2..size,
        size / 3..size / 2,
        u64::MAX..u64::MAX,
    ];
    let step = whole.len().div_ceil(8).max(1);
    for extent in whole.iter().step_by(step) {
        let Range { start, end } = extent.logical;
        ranges.extend([
            start..end,
            start..start + 1,
            end - 1..end,
            end - 1..end + 1,
            start.saturating_sub(1)..end,
            start..end + 4096,
        ]);
    }
    ranges
}

fn probes(range: &Range<u64>) -> Vec<u64> {
    if range.is_empty() {
        return Vec::new();
    }
    let middle = range.start + (range.end - range.start) / 2;
    vec![range.start, middle, range.end - 1]
}

fn stops_on_break(fs: &dyn FileSystem, node: NodeId, extents: usize, size: u64) {
    let mut visited = 0;
    fs.map(node, 0..size, &mut |_| {
        visited += 1;
        ControlFlow::Break(())
    })
    .expect("the map of a file");
    assert_eq!(
        visited,
        extents.min(1),
        "node {node}: visited on after Break"
    );
}
