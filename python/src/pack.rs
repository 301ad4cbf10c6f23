//! Packs a directory into an image.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use forerun::PackOptions;
use pyo3::types::{PyDict, PyDictMethods};
use pyo3::{Bound, PyResult, Python, pyfunction};

use crate::errors::Failed;
use crate::interruptible::{self, Counts};

/// Packs the directory `source` into the new file `image`. Returns facts about the image.
#[pyfunction]
#[pyo3(signature = (
    source, image, *, format="squashfs", compressor=None, level=None, block_size=None, threads=0,
    exclude=Vec::new(), xattrs=true, latest=None, replace=false
))]
#[allow(clippy::too_many_arguments)] // Keywords of Python, most of them left out by most callers.
pub fn pack<'py>(
    py: Python<'py>,
    source: PathBuf,
    image: PathBuf,
    format: &str,
    compressor: Option<String>,
    level: Option<u8>,
    block_size: Option<u32>,
    threads: usize,
    exclude: Vec<String>,
    xattrs: bool,
    latest: Option<i64>,
    replace: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let stop = Arc::new(AtomicBool::new(false));
    let mut options = PackOptions::new(format);
    options.compressor = compressor;
    options.level = level;
    options.block_size = block_size;
    options.threads = threads;
    options.exclude = exclude;
    options.no_xattrs = !xattrs;
    options.latest = latest;
    options.replace = replace;
    options.stop = Arc::clone(&stop);
    let packed = interruptible::run(py, None, &Counts::default(), &stop, || {
        let packed = options.pack(&source, &image);
        packed.map_err(|error| Failed::of(&error))
    })?;
    let facts = PyDict::new(py);
    facts.set_item("image_bytes", packed.len)?;
    facts.set_item("content_bytes", packed.content_bytes)?;
    facts.set_item("nodes", packed.nodes)?;
    let lost = PyDict::new(py);
    for not_kept in &packed.not_kept {
        lost.set_item(not_kept.what.name(), not_kept.count)?;
    }
    facts.set_item("not_kept", lost)?;
    Ok(facts)
}

/// Returns the names of the formats that `pack` can write.
#[pyfunction]
pub fn packable_formats() -> Vec<&'static str> {
    PackOptions::FORMATS.to_vec()
}
