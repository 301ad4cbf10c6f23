//! Where the bytes of a file are stored in the image.

use std::ops::ControlFlow;
use std::path::Path;

use forerun::vfs::{self, Place};
use pyo3::{pyclass, pymethods};

use crate::errors::Result;
use crate::handle::Held;

/// A part of a file, and where it is stored. Offsets and lengths are in bytes.
#[pyclass(frozen, get_all, module = "forerun")]
#[derive(Clone, Debug)]
pub struct Extent {
    /// Offset in the file.
    start: u64,
    /// End in the file.
    end: u64,
    /// `stored`, `encoded`, `zero` or `inline`.
    kind: &'static str,
    /// Number of the file or device that holds it; 0 is the image itself.
    blob: Option<u32>,
    /// Offset in that file or device of the bytes, or of the encoded block.
    offset: Option<u64>,
    /// Stored length in that file or device.
    stored: Option<u64>,
    /// Name of the codec.
    codec: Option<String>,
    /// Offset of the extent in the decoded block.
    skip: Option<u32>,
}

#[pymethods]
impl Extent {
    fn __repr__(&self) -> String {
        let place = self.offset.map(|offset| format!(" at {offset}"));
        let codec = self.codec.as_deref().map(|codec| format!(", {codec}"));
        format!(
            "<Extent {}-{} {}{}{}>",
            self.start,
            self.end,
            self.kind,
            place.unwrap_or_default(),
            codec.unwrap_or_default()
        )
    }
}

/// Most extents that are listed for a file.
const MOST: usize = 1 << 20;

pub fn extents(image: &Held, path: &Path) -> Result<Vec<Extent>> {
    let file = image.file(path)?;
    let mut found = Vec::new();
    let mut is_over = false;
    let range = 0..file.metadata().size;
    let mapped = image.reader().fs().map(file.node(), range, &mut |extent| {
        is_over = found.len() >= MOST;
        if is_over {
            return ControlFlow::Break(());
        }
        found.push(Extent::from(extent));
        ControlFlow::Continue(())
    });
    let mapped = mapped.and_then(|()| {
        if is_over {
            Err(vfs::Error::limit(
                vfs::Bound::Other,
                "number of extents of a file",
                1 << 20,
            ))
        } else {
            Ok(())
        }
    });
    mapped.map_err(|error| crate::errors::Failed::from(error).at(path))?;
    Ok(found)
}

impl From<vfs::Extent> for Extent {
    fn from(extent: vfs::Extent) -> Self {
        let (start, end) = (extent.logical.start, extent.logical.end);
        let bare = |kind| Self {
            start,
            end,
            kind,
            blob: None,
            offset: None,
            stored: None,
            codec: None,
            skip: None,
        };
        match extent.place {
            Place::Zero => bare("zero"),
            Place::Inline(_) => bare("inline"),
            Place::Stored { blob, offset } => Self {
                blob: Some(blob.0),
                offset: Some(offset),
                stored: Some(end.saturating_sub(start)),
                ..bare("stored")
            },
            Place::Encoded { block, skip } => Self {
                blob: Some(block.blob.0),
                offset: Some(block.offset),
                stored: Some(block.len.into()),
                codec: Some(block.codec.name().to_string()),
                skip: Some(skip),
                ..bare("encoded")
            },
        }
    }
}
