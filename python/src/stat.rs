//! Metadata of a file, in the form of `os.stat_result`.

use forerun::vfs::{Device, FileType, Metadata};
use pyo3::{pyclass, pymethods};

/// The metadata of a file or directory in an image, with the names of `os.stat_result`.
#[pyclass(frozen, module = "forerun")]
#[derive(Clone, Debug)]
pub struct Stat {
    metadata: Metadata,
    node: u64,
}

impl Stat {
    pub const fn new(metadata: Metadata, node: u64) -> Self {
        Self { metadata, node }
    }
}

/// Returns the file type bits of a mode.
pub const fn kind_bits(kind: FileType) -> u32 {
    match kind {
        FileType::Fifo => 0o010_000,
        FileType::CharDevice => 0o020_000,
        FileType::Directory => 0o040_000,
        FileType::BlockDevice => 0o060_000,
        FileType::Regular => 0o100_000,
        FileType::Symlink => 0o120_000,
        FileType::Socket => 0o140_000,
    }
}

#[pymethods]
impl Stat {
    /// Returns the file type and permissions.
    #[getter]
    fn st_mode(&self) -> u32 {
        kind_bits(self.metadata.kind) | u32::from(self.metadata.mode)
    }

    /// Returns the node number in the image.
    #[getter]
    const fn st_ino(&self) -> u64 {
        self.node
    }

    /// Returns the number of hard links.
    #[getter]
    const fn st_nlink(&self) -> u32 {
        self.metadata.nlink
    }

    /// Returns the user id of the owner.
    #[getter]
    const fn st_uid(&self) -> u32 {
        self.metadata.uid
    }

    /// Returns the group id of the owner.
    #[getter]
    const fn st_gid(&self) -> u32 {
        self.metadata.gid
    }

    /// Returns the length in bytes.
    #[getter]
    const fn st_size(&self) -> u64 {
        self.metadata.size
    }

    /// Returns the modification time, in seconds since 1970.
    #[getter]
    #[allow(clippy::as_conversions, clippy::cast_precision_loss)] // Python's own attribute is as inexact.
    fn st_mtime(&self) -> f64 {
        let mtime = self.metadata.mtime;
        mtime.seconds as f64 + f64::from(mtime.nanoseconds) / 1e9
    }

    /// Returns the modification time, in nanoseconds since 1970.
    #[getter]
    fn st_mtime_ns(&self) -> i128 {
        let mtime = self.metadata.mtime;
        i128::from(mtime.seconds) * 1_000_000_000 + i128::from(mtime.nanoseconds)
    }

    /// Returns the major and minor number of a device node.
    #[getter]
    const fn device(&self) -> (u32, u32) {
        let Device { major, minor } = self.metadata.device;
        (major, minor)
    }

    /// Returns the file type: `file`, `directory`, `symlink`, `char_device`, `block_device`, `fifo`
    /// or `socket`.
    #[getter]
    const fn kind(&self) -> &'static str {
        self.metadata.kind.name()
    }

    fn __repr__(&self) -> String {
        format!(
            "Stat(kind='{}', st_mode={:#o}, st_size={}, st_uid={}, st_gid={})",
            self.kind(),
            self.st_mode(),
            self.metadata.size,
            self.metadata.uid,
            self.metadata.gid
        )
    }
}
