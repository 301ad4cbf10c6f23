//! How far a transfer has come.

/// How far a push or pull has come, in bytes of the image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Done with, sent or not.
    pub done: u64,
    /// Of how many.
    pub total: u64,
    /// Of those done, how many went over the network.
    pub transferred: u64,
}
