//! Copies files of an image to disk or into a tar archive.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use forerun_export::{
    ExtractOptions, ExtractReport, Patterns, Selection, TarWriteOptions, extract, write_tar,
};
use pyo3::types::{PyAnyMethods, PyBytes, PyDict, PyDictMethods};
use pyo3::{Bound, Py, PyAny, PyResult, Python};

use crate::errors::{Failed, Result};
use crate::handle::Held;
use crate::interruptible::{self, Counts};

/// Bytes passed to a file object at a time.
const CHUNK: usize = 1 << 20;

/// Which part of an image to copy.
pub struct Wanted {
    /// Paths to copy, with everything below them; if empty, everything.
    pub paths: Vec<OsString>,
    /// Patterns; a path must match at least one of them.
    pub include: Vec<String>,
    /// Patterns of paths to leave out.
    pub exclude: Vec<String>,
    /// Number of leading path components to remove.
    pub strip_components: usize,
}

impl Wanted {
    fn selection(self) -> Result<Selection> {
        let patterns = |given: &[String]| Patterns::new(given).map_err(|error| Failed::of(&error));
        Ok(Selection {
            include: patterns(&self.include)?,
            exclude: patterns(&self.exclude)?,
            paths: self.paths.into_iter().map(OsStringExt::into_vec).collect(),
            strip_components: self.strip_components,
            ..Selection::default()
        })
    }
}

/// Extracts files below `dir`. Returns what was done, and what failed.
pub fn to_disk<'py>(
    py: Python<'py>,
    held: &Held,
    dir: PathBuf,
    wanted: Wanted,
    (force, threads): (bool, usize),
    report: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let stop = Arc::new(AtomicBool::new(false));
    let options = ExtractOptions {
        force,
        threads,
        stop: Arc::clone(&stop),
        ..ExtractOptions::default()
    };
    let counts = Counts::default();
    let done = interruptible::run(py, report, &counts, &stop, || {
        let selection = wanted.selection()?;
        let done = extract(held.reader(), &selection, &dir, &options, &counts);
        done.map_err(|error| Failed::of(&error))
    })?;
    as_dict(py, &done)
}

fn as_dict<'py>(py: Python<'py>, done: &ExtractReport) -> PyResult<Bound<'py, PyDict>> {
    let facts = PyDict::new(py);
    facts.set_item("files", done.files)?;
    facts.set_item("bytes", done.bytes)?;
    facts.set_item("directories", done.directories)?;
    facts.set_item("symlinks", done.symlinks)?;
    facts.set_item("hard_links", done.hard_links)?;
    facts.set_item("specials", done.specials)?;
    facts.set_item("missing", done.missing)?;
    let failures: Vec<String> = done.failures.iter().map(ToString::to_string).collect();
    facts.set_item("failures", failures)?;
    let losses = PyDict::new(py);
    for shortfall in &done.shortfalls {
        losses.set_item(shortfall.loss.name(), shortfall.count)?;
    }
    facts.set_item("losses", losses)?;
    Ok(facts)
}

/// The destination of an archive.
pub enum Target {
    /// A new file.
    Path(PathBuf),
    /// A binary file object.
    Object(Py<PyAny>),
}

/// Writes an archive. Returns the number of entries, and what failed.
pub fn to_tar(
    py: Python<'_>,
    held: &Held,
    target: Target,
    wanted: Wanted,
    report: Option<&Bound<'_, PyAny>>,
) -> PyResult<(u64, Vec<String>)> {
    let stop = AtomicBool::new(false);
    let counts = Counts::default();
    interruptible::run(py, report, &counts, &stop, || {
        let selection = wanted.selection()?;
        let options = TarWriteOptions::default();
        let (out, made): (Box<dyn Write + Send>, _) = match target {
            Target::Path(path) => {
                let file = File::create_new(&path);
                let file = file.map_err(|error| Failed::of(&error).at(&path))?;
                (Box::new(file), Some(path))
            }
            Target::Object(object) => {
                let object = BufWriter::with_capacity(CHUNK, Object(object));
                (Box::new(object), None)
            }
        };
        let mut out = Stoppable { out, stop: &stop };
        let written = write_tar(held.reader(), &selection, &mut out, &options, &counts)
            .map_err(|error| Failed::of(&error))
            .and_then(|written| {
                out.flush().map_err(|error| Failed::of(&error))?;
                Ok(written)
            });
        if let (Err(_), Some(path)) = (&written, &made) {
            // Report the first error, not an error of the removal.
            let _is_left = fs::remove_file(path);
        }
        let written = written?;
        let failures = written.failures.iter().map(ToString::to_string).collect();
        Ok((written.entries, failures))
    })
}

/// An output whose writes fail once `stop` is set.
struct Stoppable<'s> {
    out: Box<dyn Write + Send>,
    stop: &'s AtomicBool,
}

impl Write for Stoppable<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.stop.load(Ordering::Relaxed) {
            Err(io::Error::other("stopped"))
        } else {
            self.out.write(bytes)
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

struct Object(Py<PyAny>);

impl Write for Object {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = Python::attach(|py| {
            let bytes = PyBytes::new(py, bytes);
            let written = self.0.bind(py).call_method1("write", (bytes,))?;
            // Some file objects write everything and return None.
            if written.is_none() {
                Ok(None)
            } else {
                written.extract().map(Some)
            }
        });
        let written: Option<usize> =
            written.map_err(|error: pyo3::PyErr| io::Error::other(error.to_string()))?;
        Ok(written.unwrap_or(bytes.len()).min(bytes.len()))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
