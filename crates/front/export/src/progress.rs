//! How far a long job has come.

/// Told about progress, from any thread.
pub trait Progress: Sync {
    /// Begins a job of this length.
    fn begin(&self, total_bytes: u64, total_files: u64);
    /// Advances by what is done since the last call.
    fn advance(&self, bytes: u64, files: u64);
}

#[derive(Clone, Copy, Debug, Default)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn begin(&self, _total_bytes: u64, _total_files: u64) {}

    fn advance(&self, _bytes: u64, _files: u64) {}
}
