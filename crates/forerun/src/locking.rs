//! How a caller has the locks of other processes treated.

/// How the locks of other processes on a volume that changes are treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Locking {
    /// A reader is refused while a process writes, a writer while any process has the volume.
    #[default]
    Respect,
    /// A writer continues although other processes read. Writers still exclude each other.
    Break,
    /// A reader takes no lock and checks none: the data it reads may be inconsistent.
    Ignore,
}
