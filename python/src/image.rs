//! The class `Image`.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forerun::unstable::remote::without_secrets;
use forerun::{OpenOptions, format_names as names, vfs};
use forerun_export::expand;
use pyo3::exceptions::PyValueError;
use pyo3::types::{PyAnyMethods, PyBytes, PyDict, PyDictMethods, PyList, PyString};
use pyo3::{Bound, PyAny, PyResult, Python, pyclass, pyfunction, pymethods};

use crate::entries::{Entries, stat};
use crate::errors::{Failed, Result};
use crate::export::{Target, Wanted, to_disk, to_tar};
use crate::extents::{Extent, extents};
use crate::file::{RawFile, read_path};
use crate::handle::{Handle, Held, Place};
use crate::mounts::Mount;
use crate::options::open_options;
use crate::path::InImage;
use crate::read_many::ReadMany;
use crate::source::FileObject;
use crate::stat::Stat;

/// An open image. Threads may share it, and a forked process may use it.
#[pyclass(frozen, subclass, module = "forerun")]
pub struct Image {
    handle: Arc<Handle>,
    /// Path or address; `None` for a file object without a name.
    name: Option<OsString>,
}

impl Image {
    fn held(&self, py: Python<'_>) -> PyResult<Held> {
        self.handle.image(py)
    }
}

/// Converts the argument of `forerun.open` to a place.
fn place(source: &Bound<'_, PyAny>) -> PyResult<Place> {
    if source.is_instance_of::<PyList>() {
        return Ok(Place::Layers(source.extract()?));
    }
    if source.hasattr("read")? && source.hasattr("seek")? {
        let name = source.getattr("name").ok();
        let name = name.and_then(|name| name.cast_into::<PyString>().ok());
        let name = name.and_then(|name| name.extract().ok());
        return Ok(Place::Object(Arc::new(FileObject::new(source)?), name));
    }
    let name = source.extract::<InImage>()?.0;
    if name.to_str().is_some_and(|name| name.contains("://")) {
        return Ok(Place::Name(name, None));
    }
    // Make the path absolute, so that a later change of the working directory, or unpickling
    // elsewhere, does not matter.
    let name = std::path::absolute(&name).unwrap_or(name);
    let file = source.py().detach(|| local_file(&name));
    Ok(Place::Name(name, file))
}

/// Opens a local file for forked processes. Not a pipe, which would block until a writer opens it.
fn local_file(name: &Path) -> Option<File> {
    let kind = name.metadata().ok()?.file_type();
    let is_image = kind.is_file() || kind.is_block_device();
    is_image.then(|| File::open(name).ok()).flatten()
}

#[pymethods]
impl Image {
    #[new]
    #[pyo3(signature = (source, **options))]
    fn new(
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let place = place(source)?;
        let name = match &place {
            Place::Name(name, _) | Place::Object(_, Some(name)) => Some(name.clone().into()),
            Place::Layers(names) => {
                let names: Vec<_> = names.iter().map(|name| name.as_os_str()).collect();
                Some(names.join(":".as_ref()))
            }
            Place::Object(_, None) => None,
        };
        let options = options.map_or_else(|| Ok(OpenOptions::default()), open_options)?;
        let handle = Handle::open(py, place, options)?;
        Ok(Self {
            handle: Arc::new(handle),
            name,
        })
    }

    /// Returns the path or address, without passwords and signatures.
    #[getter]
    fn name(&self) -> Option<OsString> {
        let name = self.name.as_ref()?;
        match name.to_str() {
            Some(text) if text.contains("://") => Some(without_secrets(text).into()),
            _ => Some(name.clone()),
        }
    }

    /// Returns the path or address with which to open the image again.
    fn address(&self) -> Option<OsString> {
        self.name.clone()
    }

    /// Returns the name of the format, such as `squashfs`.
    #[getter]
    fn format(&self, py: Python<'_>) -> PyResult<&'static str> {
        Ok(self.held(py)?.format())
    }

    /// Returns whether `close` was called.
    #[getter]
    fn closed(&self) -> bool {
        self.handle.is_closed()
    }

    /// Closes the image. Does nothing the second time.
    fn close(&self, py: Python<'_>) {
        let handle = &self.handle;
        // Drop it without the interpreter's lock: a thread of the image may need the lock to read
        // from a file object.
        let held = handle.take();
        py.detach(|| drop(held));
    }

    /// Returns facts about the image as a whole.
    fn facts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let held = self.held(py)?;
        let volume = held.reader().fs().volume();
        let facts = PyDict::new(py);
        facts.set_item("format", held.format())?;
        facts.set_item("offset", held.offset())?;
        facts.set_item("source_bytes", held.source_len())?;
        facts.set_item("label", String::from_utf8_lossy(&volume.label).into_owned())?;
        facts.set_item("image_bytes", volume.image_len)?;
        facts.set_item("block_size", volume.block_size)?;
        facts.set_item("inodes", volume.inodes)?;
        facts.set_item("created", volume.created)?;
        for (name, value) in &volume.details {
            facts.set_item(name, value)?;
        }
        facts.set_item("warnings", &volume.warnings)?;
        Ok(facts)
    }

    /// Reads the whole file at `path`.
    fn read<'py>(&self, py: Python<'py>, path: InImage) -> PyResult<Bound<'py, PyBytes>> {
        read_path(py, &self.held(py)?, &path.0)
    }

    /// Opens the file at `path`.
    fn open_raw(&self, py: Python<'_>, path: InImage) -> PyResult<RawFile> {
        RawFile::open(py, Arc::clone(&self.handle), path.0)
    }

    /// Returns the metadata at `path`. Follows symbolic links, but the last component only with
    /// `follow_symlinks`.
    #[pyo3(signature = (path="/".into(), *, follow_symlinks=true))]
    fn stat(&self, py: Python<'_>, path: InImage, follow_symlinks: bool) -> PyResult<Stat> {
        let held = self.held(py)?;
        Ok(py.detach(|| stat(&held, &path.0, follow_symlinks, None))?)
    }

    /// Returns whether `path` exists.
    fn exists(&self, py: Python<'_>, path: InImage) -> PyResult<bool> {
        let held = self.held(py)?;
        Ok(py.detach(|| held.exists(&path.0).map_err(Failed::from))?)
    }

    /// Returns the target of the symbolic link at `path`.
    fn readlink(&self, py: Python<'_>, path: InImage) -> PyResult<OsString> {
        let held = self.held(py)?;
        Ok(py.detach(|| {
            let target = held.read_link(&path.0).map_err(Failed::from);
            target.map(OsString::from)
        })?)
    }

    /// Returns `path` without symbolic links, `.` and `..`.
    fn realpath(&self, py: Python<'_>, path: InImage) -> PyResult<OsString> {
        let held = self.held(py)?;
        Ok(py.detach(|| {
            let path = held.canonicalize(&path.0).map_err(Failed::from);
            path.map(OsString::from)
        })?)
    }

    /// Returns the extended attributes at `path` as a dict of names and values.
    #[pyo3(signature = (path="/".into()))]
    fn xattrs<'py>(&self, py: Python<'py>, path: InImage) -> PyResult<Bound<'py, PyDict>> {
        let held = self.held(py)?;
        let xattrs = py.detach(|| held.xattrs(&path.0).map_err(Failed::from))?;
        let found = PyDict::new(py);
        for (name, value) in xattrs {
            found.set_item(name, PyBytes::new(py, &value))?;
        }
        Ok(found)
    }

    /// Returns the names in a directory, in the image's order.
    #[pyo3(signature = (path="/".into()))]
    fn listdir(&self, py: Python<'_>, path: InImage) -> PyResult<Vec<OsString>> {
        let held = self.held(py)?;
        Ok(py.detach(|| {
            let entries = held.read_dir(&path.0)?;
            let names = entries.map(|entry| Ok(entry?.name().to_owned()));
            names.collect::<Result<_>>()
        })?)
    }

    /// Returns the entries of a directory.
    #[pyo3(signature = (path="/".into()))]
    fn scandir(&self, py: Python<'_>, path: InImage) -> PyResult<Entries> {
        let held = self.held(py)?;
        let handle = Arc::clone(&self.handle);
        Ok(py.detach(|| Entries::of_dir(handle, held, &path.0))?)
    }

    /// Walks `path` and everything below it, each directory before its contents. Does not follow
    /// symbolic links.
    #[pyo3(signature = (path="/".into()))]
    fn entries(&self, py: Python<'_>, path: InImage) -> PyResult<Entries> {
        let held = self.held(py)?;
        let handle = Arc::clone(&self.handle);
        Ok(py.detach(|| Entries::of_tree(handle, held, &path.0))?)
    }

    /// Returns the paths that match a pattern, in byte order: `*`, `?`, `[...]` and `{a,b}` match
    /// within a name, `**` also matches slashes.
    fn glob(&self, py: Python<'_>, pattern: InImage) -> PyResult<Vec<OsString>> {
        use std::os::unix::ffi::OsStringExt;
        let held = self.held(py)?;
        Ok(py.detach(|| {
            let pattern = OsString::from(pattern.0).into_vec();
            match expand(held.reader(), &pattern) {
                // A pattern without wildcards is returned without a lookup.
                Ok(found) if found == [pattern.as_slice()] => {
                    let path = PathBuf::from(OsString::from_vec(pattern));
                    let is_there = held.exists(&path).map_err(Failed::from)?;
                    Ok(is_there.then(|| path.into()).into_iter().collect())
                }
                Ok(found) => Ok(found.into_iter().map(OsString::from_vec).collect()),
                Err(forerun_export::ExportError::Image {
                    source: vfs::Error::NotFound | vfs::Error::NotADirectory,
                    ..
                }) => Ok(Vec::new()),
                Err(error) => Err(Failed::of(&error)),
            }
        })?)
    }

    /// Returns where the bytes of a file are stored in the image.
    fn map(&self, py: Python<'_>, path: InImage) -> PyResult<Vec<Extent>> {
        let held = self.held(py)?;
        Ok(py.detach(|| extents(&held, &path.0))?)
    }

    /// Returns the image's counters of reads and decodes since it was opened.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let held = self.held(py)?;
        let stats = PyDict::new(py);
        for (counter, value) in held.reader().observer().stats().snapshot().iter() {
            stats.set_item(counter.name(), value)?;
        }
        Ok(stats)
    }

    /// Reads files, or parts of them, on several threads, ahead of the returned iterator.
    #[pyo3(signature = (wanted, workers, in_order, memory, as_errors))]
    fn read_ahead(
        &self,
        py: Python<'_>,
        wanted: &Bound<'_, PyAny>,
        workers: Option<usize>,
        in_order: bool,
        memory: u64,
        as_errors: bool,
    ) -> PyResult<ReadMany> {
        if workers == Some(0) {
            return Err(PyValueError::new_err("workers=0: at least one"));
        }
        let held = self.held(py)?;
        ReadMany::new(held, wanted, workers, (in_order, as_errors), memory)
    }

    /// Extracts files to a directory.
    #[pyo3(signature = (dir, paths, include, exclude, strip_components, force, threads, report))]
    #[allow(clippy::too_many_arguments)] // Keywords of the method of the package.
    fn extract_to<'py>(
        &self,
        py: Python<'py>,
        dir: PathBuf,
        paths: Vec<InImage>,
        include: Vec<String>,
        exclude: Vec<String>,
        strip_components: usize,
        force: bool,
        threads: usize,
        report: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let held = self.held(py)?;
        let wanted = Wanted {
            paths: paths.into_iter().map(|path| path.0.into()).collect(),
            include,
            exclude,
            strip_components,
        };
        to_disk(py, &held, dir, wanted, (force, threads), report)
    }

    /// Writes a tar archive to a new file, or to a binary file object.
    #[pyo3(signature = (target, paths, include, exclude, report))]
    fn tar_to(
        &self,
        py: Python<'_>,
        target: &Bound<'_, PyAny>,
        paths: Vec<InImage>,
        include: Vec<String>,
        exclude: Vec<String>,
        report: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<(u64, Vec<String>)> {
        let held = self.held(py)?;
        let wanted = Wanted {
            paths: paths.into_iter().map(|path| path.0.into()).collect(),
            include,
            exclude,
            strip_components: 0,
        };
        let target = if target.hasattr("write")? {
            Target::Object(target.clone().unbind())
        } else {
            Target::Path(target.extract()?)
        };
        to_tar(py, &held, target, wanted, report)
    }

    /// Mounts the image on a directory.
    fn mount_on(&self, py: Python<'_>, dir: PathBuf, options: &str) -> PyResult<Mount> {
        let held = self.held(py)?;
        Ok(py.detach(|| Mount::new(&held, &dir, options))?)
    }
}

/// Returns the names of the formats that can be opened.
#[pyfunction]
pub fn format_names() -> Vec<&'static str> {
    names()
}
