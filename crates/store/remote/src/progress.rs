#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes completed, whether they were transferred or already present.
    pub done: u64,
    pub total: u64,
    /// Bytes sent over the network.
    pub transferred: u64,
}
