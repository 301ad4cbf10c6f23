//! Files besides a compressed archive that opening it needs: a temporary one, if it is decompressed
//! whole, and the index that an earlier opening stored. Both are opened before the process enters
//! its sandbox, in which it can open nothing.

use std::fs::{File, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forerun::build::spool_file;
use forerun::unstable::{KeptIndex, spool};
use forerun::vfs::MakeSpool;
use forerun::{OpenOptions, ReadAt};
use forerun_sandbox::Sandbox;

struct Made(io::Result<File>);

impl MakeSpool for Made {
    fn make(&self) -> io::Result<File> {
        match &self.0 {
            Ok(file) => file.try_clone(),
            Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
        }
    }
}

/// Creates the temporary file for the image in `file` if it may need one. A remote image gets one,
/// because its server was not contacted yet.
pub fn prepare(file: Option<&dyn ReadAt>, options: &OpenOptions) -> Option<Arc<dyn MakeSpool>> {
    let is_needed = file.is_none_or(|file| spool::may_be_needed(file, options));
    is_needed.then(|| -> Arc<dyn MakeSpool> { Arc::new(Made(spool_file())) })
}

/// Opens the stored index of the archive at `path`, or creates one, below the directory `cache`.
/// Without an index the archive is read again each time, so a failure is only logged.
pub fn open_index(
    cache: Option<PathBuf>,
    path: &Path,
    file: (&dyn ReadAt, &Metadata),
    options: &OpenOptions,
) -> Option<KeptIndex> {
    let cache = cache.filter(|_| spool::is_worth_an_index(file.0, options))?;
    let index = KeptIndex::open(&cache, path, file.1, options);
    index
        .inspect_err(|error| tracing::debug!(%error, "no index of the archive is kept"))
        .ok()
}

/// Returns a sandbox that still allows creating files in the index's directory.
pub fn sandbox(index: &KeptIndex) -> Sandbox {
    Sandbox::new().name_files_in(index.dir())
}
