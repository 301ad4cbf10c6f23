//! How to treat the locks of other processes.

/// How to treat the locks of other processes on a volume that changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Locking {
    /// Refuses a reader while a process writes, and a writer while any process uses the volume.
    #[default]
    Respect,
    /// Lets a writer continue although other processes read. Writers still exclude each other.
    Break,
    /// Lets a reader take and check no locks: the data that it reads may be inconsistent.
    Ignore,
}
