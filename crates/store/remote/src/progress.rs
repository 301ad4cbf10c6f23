//! Progress of a transfer.

/// Progress of a push or pull, in bytes of the image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that are done, whether transferred or not.
    pub done: u64,
    /// Length of the image.
    pub total: u64,
    /// Bytes that went over the network.
    pub transferred: u64,
}
