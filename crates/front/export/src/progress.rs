//! Progress of a long operation.

/// Receives progress from any thread.
pub trait Progress: Sync {
    fn begin(&self, total_bytes: u64, total_files: u64);
    /// Adds the work done since the last call.
    fn advance(&self, bytes: u64, files: u64);
}

#[derive(Clone, Copy, Debug, Default)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn begin(&self, _total_bytes: u64, _total_files: u64) {}

    fn advance(&self, _bytes: u64, _files: u64) {}
}
